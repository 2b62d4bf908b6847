// peer_wllama.mjs - llama.cpp as WebAssembly (wllama) in Debian's Chromium: which files it loads, and its greedy tokens.
//
//     CHROMIUM=FILE node peer_wllama.mjs FOLDER JOBS.json        # FOLDER has node_modules; peer_exports.py calls it
//
// JOBS.json: [{"name", "model": a GGUF's path, "prompts": [text, …], "tokens": N}]. Prints a line of JSON for each job:
// {"name", "tokens": [[id, …], …]}, or {"name", "refused": why} when the file does not load, or {"name", "failed": why}.
// Every job has a page of its own: llama.cpp may abort. The texts of the model's tokens must be valid UTF-8 each.
import http from 'node:http';
import { createReadStream, existsSync, readFileSync, statSync } from 'node:fs';
import { createRequire } from 'node:module';
import { extname, resolve } from 'node:path';

const folder = resolve(process.argv[2]);
const jobs = JSON.parse(readFileSync(process.argv[3]));
const { chromium } = createRequire(folder + '/')('playwright-core');
const flags = ['--headless', '--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run', '--disable-background-networking',
  '--disable-component-update', '--disable-sync'];
const PATIENCE = 60e3;                                                          // milliseconds for a job

// wllama's files, the models as /0.gguf, /1.gguf, … and an empty page; with the headers that let a page share memory.
const isolated = { 'cross-origin-opener-policy': 'same-origin', 'cross-origin-embedder-policy': 'require-corp' };
const types = { '.js': 'text/javascript', '.wasm': 'application/wasm', '.html': 'text/html' };
const server = http.createServer((request, response) => {
  const path = request.url.split('?')[0], model = /^\/(\d+)\.gguf$/.exec(path);
  if (path === '/') return response.writeHead(200, { ...isolated, 'content-type': 'text/html' }).end('<!doctype html>');
  const file = model ? jobs[model[1]].model : `${folder}/node_modules/@wllama/wllama${path}`;
  if (path.includes('..') || !existsSync(file)) return response.writeHead(404).end();
  response.writeHead(200, { ...isolated, 'content-type': types[extname(file)] ?? 'application/octet-stream', 'content-length': statSync(file).size });
  createReadStream(file).pipe(response);
});
await new Promise(done => server.listen(0, '127.0.0.1', done));
const origin = `http://127.0.0.1:${server.address().port}`;

// Runs in the page. One thread, caches in float32; a stop token does not stop it, so prompts should meet none.
async function answer({ index, prompts, tokens }) {
  const { Wllama } = await import('/esm/index.js');
  const wllama = new Wllama({ default: '/esm/wasm/wllama.wasm' });
  const model = await (await fetch(`/${index}.gguf`)).blob();
  try {
    await wllama.loadModel([model], { n_ctx: 512, n_threads: 1, n_gpu_layers: 0, cache_type_k: 'f32', cache_type_v: 'f32', flash_attn: false });
  } catch (error) {
    return { refused: String(error?.message ?? error) };
  }
  if (!wllama.loadedContextInfo?.success) return { refused: '' };                // loadModel does not throw then; llama.cpp said why
  const answers = [];
  for (const prompt of prompts) {
    const { choices } = await wllama.createCompletion({ prompt, max_tokens: tokens, temperature: 0, top_k: 1, logprobs: 1, ignore_eos: true });
    answers.push(choices[0].logprobs.content.map(token => token.id));
  }
  return { tokens: answers };
}

const browser = await chromium.launch({ executablePath: process.env.CHROMIUM, args: flags });
for (const [index, job] of jobs.entries()) {
  const page = await browser.newPage(), said = [];
  page.on('console', message => said.push(message.text()));
  await page.goto(origin + '/');
  let timer;
  const late = new Promise(done => { timer = setTimeout(done, PATIENCE, { failed: `nothing after ${PATIENCE / 1e3} s` }); });
  const result = await Promise.race([late, page.evaluate(answer, { index, prompts: job.prompts, tokens: job.tokens })
    .catch(error => ({ failed: error.message.split('\n')[0] }))]);
  clearTimeout(timer);
  if (result.refused === '') result.refused = said.find(line => /error loading model|GGML_ASSERT/.test(line))?.replace(/.*error loading model: /, '') ?? 'no reason given';
  console.log(JSON.stringify({ name: job.name, ...result }));
  await page.close();
}
await browser.close();
server.close();
