// report.mjs - the page of `clover diff --html` in Debian's Chromium, through Playwright. peer_report.sh calls it with the folder
// that holds playwright-core, the pages of tests/test_diff_html.c (whose planted numbers stand below, see diff_html_example.h)
// and a folder for screenshots, which are to be looked at.
import { createRequire } from 'node:module';
import { resolve } from 'node:path';

const [modules, small, large, shots] = process.argv.slice(2).map(path => resolve(path));
const { chromium } = createRequire(modules + '/')('playwright-core');
const flags = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];

let checked = 0, failed = 0;
function check(what, right, found = '') {
  checked++;
  if (right) return;
  failed++;
  console.log(`  not so: ${what}${found === '' ? '' : `; found ${JSON.stringify(found)}`}`);
}
const equal = (what, found, expected) => check(`${what} is ${JSON.stringify(expected)}`, found === expected, found);

// A page in a context of its own; whatever it asks of the network or says on its console is kept.
async function open(file, options = {}) {
  const context = await browser.newContext({ viewport: { width: 1280, height: 900 }, ...options });
  const page = await context.newPage();
  page.asked = [];
  page.said = [];
  page.on('request', r => page.asked.push(r.url()));
  page.on('console', m => page.said.push(m.text()));
  page.on('pageerror', e => page.said.push(e.message));
  await page.goto('file://' + file);
  return page;
}
async function close(page) {
  equal('the number of things fetched', page.asked.length, 1);
  equal('what the console says', page.said.join('; '), '');
  await page.context().close();
}
// The panel's rows: {name: [values]}.
const panel = page => page.evaluate(() => Object.fromEntries(Array.from(document.querySelectorAll('#panel tr'),
  row => [row.cells[0].textContent, Array.from(row.cells).slice(1).map(c => c.textContent)])));
const chosen = page => page.evaluate(() => document.activeElement.getAttribute('aria-label'));

// The contrast of every kind of cell and chip with its ground. WCAG 2.2: 4.5 for text.
const contrasts = page => page.evaluate(() => {
  const light = rgb => rgb.map(c => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, k) => sum + c * [0.2126, 0.7152, 0.0722][k], 0);
  const parse = text => text.match(/[\d.]+/g).map(Number);
  function ground(e) {
    for (; e; e = e.parentElement) {
      const c = parse(getComputedStyle(e).backgroundColor);
      if (c.length === 3 || c[3] === 1) return c.slice(0, 3);
    }
    return [255, 255, 255];
  }
  const worst = {};
  const wanted = 'h1, p, dd, dt, a, .legend span, .map td, .map th, .map i, .grid td, .grid small, .tok, .rounds th, .figures td, ' +
    '.figures th, aside td, aside th, summary, .scale span';
  for (const e of document.querySelectorAll(wanted)) {
    if (!e.textContent.trim() || !e.getClientRects().length) continue;
    const [a, b] = [light(parse(getComputedStyle(e).color).slice(0, 3)), light(ground(e))].sort((x, y) => y - x);
    const ratio = (a + 0.05) / (b + 0.05), name = e.tagName.toLowerCase() + '.' + e.className;
    if (!(worst[name] <= ratio)) worst[name] = ratio;
  }
  return worst;
});

// The numbers that a click shows, against those of example_stage().
async function numbers() {
  const page = await open(small);
  equal('the title', await page.title(), 'differs: build/tmp/report');
  equal('the panel at first', await page.isHidden('#panel'), true);
  await page.click('td.first');
  equal('the chosen probe', await page.textContent('#panel h3'), 'L02.gdn.mixed');
  const at = await page.textContent('#panel p.quiet'), verdict = await page.textContent('#panel p.bad');
  equal('its place', at, 'sentence/step-01, clause GDN-6');
  equal('its verdict', verdict, 'differs: the first divergence');
  equal('its note', await page.textContent('#panel p.note'), "S was rebuilt from the dump's earlier inputs");
  const shown = await panel(page);
  for (const [name, expected] of Object.entries({
    added: '0.00125 0.0125', inherited: '3.25e-7 1.5e-6', budget: '2.5e-6 5e-5', budgets: '500',
    'beyond budget': '0.375 of the elements', 'passing margin': '4000', 'worst element': 'row 3, index [3, 0, 57]',
    expected: '0.123456789', actual: '0.135956789', 'ULP of F32': '52400', shape: '[12, 32, 128] F32',
    cosine: `0.999998765 ${shown.cosine?.[1]}`, 'not finite': '0 0',
  })) equal(`the panel's ${name}`, shown[name]?.join(' '), expected);
  await page.click('td.wrong[data-i]');
  const wrong = await panel(page);
  equal('a NaN', wrong.added?.[0], 'NaN');
  equal('an infinity', wrong.actual?.[0], 'Infinity');
  equal('the count of both', wrong['not finite']?.[0], '4096');
  await page.click('td[data-i]:has-text("≈")');
  equal('choices', (await panel(page)).choices?.[0], '2 of 96 differ');
  equal('near ties', (await panel(page))['near ties']?.[0], '2');
  await page.locator('details.step[open] tr', { hasText: 'logits' }).locator('td[data-i]').click();
  equal("logits' figures", (await panel(page)).KL?.[0], '3.5e-4 worst, 1e-5 mean');
  await close(page);
}

async function keyboard() {
  const page = await open(small);
  for (let i = 0; i < 20 && !(await page.evaluate(() => document.activeElement.matches('td'))); i++) await page.keyboard.press('Tab');
  equal('Tab leads to', await chosen(page), 'L02.gdn.mixed, differs, 500 budgets');
  equal('and shows', await page.textContent('#panel h3'), 'L02.gdn.mixed');
  await page.keyboard.press('ArrowUp');
  equal('up', await page.textContent('#panel h3'), 'L02.gdn.state');
  await page.keyboard.press('ArrowRight');
  equal('right, over a layer of attention', await page.textContent('#panel h3'), 'L04.gdn.state');
  await page.keyboard.press('ArrowLeft');
  equal('left again', await page.textContent('#panel h3'), 'L02.gdn.state');
  for (let i = 0; i < 60; i++) await page.keyboard.press('ArrowDown');
  equal('down to the end', await page.textContent('#panel h3'), 'L02.out');
  equal('cells in the tab order', await page.evaluate(() => document.querySelectorAll('details[open] td[tabindex="0"]').length), 1);
  await page.keyboard.press('Escape');
  equal('Escape hides the panel', await page.isHidden('#panel'), true);
  check('and stays in its place', (await chosen(page))?.startsWith('L02.out, conforms, '), await chosen(page));
  await page.keyboard.press('Enter');
  equal('Enter shows it', await page.textContent('#panel h3'), 'L02.out');
  await page.click('#panel button');
  equal('so does its button hide it', await page.isHidden('#panel'), true);
  await close(page);
}

// A finding in a closed step leads to its cell.
async function links() {
  const page = await open(small);
  const closed = () => page.evaluate(() => document.querySelectorAll('details.step[open]').length);
  equal('open steps', await closed(), 1);
  await page.locator('#findings tr', { hasText: 'L01.gdn.conv' }).locator('a').click();
  equal('open steps after a link', await closed(), 2);
  equal('the linked probe', await page.textContent('#panel h3'), 'L01.gdn.conv');
  check('it is in view', await page.evaluate(() => {
    const cell = document.activeElement.getBoundingClientRect();
    return cell.top >= 0 && cell.bottom <= innerHeight;
  }));
  await close(page);
}

// What is written into the page cannot run, whatever it is.
async function policy() {
  const page = await open(small);
  await page.evaluate(() => {
    const script = document.createElement('script'), image = document.createElement('img');
    script.textContent = 'window.injected = 1';
    image.src = 'http://127.0.0.1:9/x.png';
    image.setAttribute('onerror', 'window.injected = 2');
    document.body.append(script, image);
  });
  await page.waitForTimeout(200);
  equal('an injected script', await page.evaluate(() => window.injected), undefined);
  check('the policy says so', page.said.length >= 2 && page.said.every(text => /Content Security Policy/.test(text)), page.said);
  await page.context().close();
}

async function without_scripts() {
  const page = await open(small, { javaScriptEnabled: false });
  const text = await page.locator('body').innerText();
  for (const part of ['Differs', 'First divergence', '0.123456789', '0.135956789', '0.00125', '2.5e-06', 'L02.gdn.mixed',
    'Without scripts', 'top-5 overlap', 'pass 0', 'A block of text', 'Notes', 'the dump has no such step', 'seven <tokens>'])
    check(`the page without scripts has ${part}`, text.includes(part));
  equal('cells with a colour', await page.locator('details[open] td.v0, details[open] td.v1').count() > 50, true);
  await page.locator('details.step summary').first().click();
  equal('steps open without scripts', await page.locator('details.step[open]').count(), 2);
  equal('the panel', await page.locator('#panel').isHidden(), true);
  await close(page);
}

async function looks(scheme, width) {
  const page = await open(small, { colorScheme: scheme, viewport: { width, height: 900 } });
  const name = `${scheme}-${width}`;
  await page.screenshot({ path: `${shots}/${name}.png`, fullPage: true });
  await page.click('td.first');
  await page.screenshot({ path: `${shots}/${name}-chosen.png` });
  equal(`${name}: the page's width`, await page.evaluate(() => document.documentElement.scrollWidth), width);
  const ground = await page.evaluate(() => getComputedStyle(document.body).backgroundColor.match(/\d+/g).map(Number));
  check(`${name}: the ground is ${scheme}`, scheme === 'dark' ? Math.max(...ground) < 60 : Math.min(...ground) > 200, ground);
  const kinds = Object.entries(await contrasts(page));
  check(`${name}: contrasts were measured`, kinds.length > 40, kinds.length);
  for (const [kind, ratio] of kinds) check(`${name}: the contrast of ${kind} is 4.5 at least`, ratio >= 4.5, ratio);
  check(`${name}: the panel leaves the chosen cell in view`, await page.evaluate(() => {
    const cell = document.activeElement.getBoundingClientRect(), over = document.getElementById('panel').getBoundingClientRect();
    return cell.right <= over.left || cell.bottom <= over.top || cell.top >= over.bottom;
  }));
  await close(page);
}

// 40 layers, 20 steps: every cell has numbers, and the last step's are there at once.
async function many() {
  const began = Date.now(), page = await open(large);
  const count = await page.evaluate(() => document.querySelectorAll('td[data-i]').length);
  check('the large page has 18,000 cells', count > 18000, count);
  await page.locator('details.step summary').last().click();
  await page.locator('details.step').last().locator('td[data-i]').last().click();
  check('the last cell shows numbers', (await page.textContent('#panel')).includes('sentence/step-19'));
  const seconds = (Date.now() - began) / 1000;
  check('the large page is open and answers within 10 s', seconds < 10, seconds);
  const bad = await page.evaluate(() => {
    let bad = 0;
    document.querySelectorAll('td[data-i]').forEach((cell, k) => {
      if (k % 37 || cell.matches('.wrong')) return;
      cell.click();
      bad += document.querySelectorAll('#panel td').length < 20 || /undefined|null|NaN/.test(document.getElementById('panel').textContent);
    });
    return bad;
  });
  equal('cells without numbers', bad, 0);
  await page.screenshot({ path: `${shots}/large.png` });
  await close(page);
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM || '/usr/bin/chromium', args: flags });
try {
  await numbers();
  await keyboard();
  await links();
  await policy();
  await without_scripts();
  for (const scheme of ['light', 'dark']) for (const width of [1280, 400]) await looks(scheme, width);
  await many();
} finally {
  await browser.close();
}
console.log(`  ${checked} checks of the page, ${failed} failed; screenshots in ${shots}`);
process.exit(failed ? 1 : 0);
