"""curve.py - the loss curve as SVG, from train.py's rows: step, seconds, causal, denoising, balance[, held-out causal and denoising]."""
import math

WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 760, 420, 60, 40, 20, 50
SERIES = (('causal', 2, '#0b62a4', ''), ('denoising', 3, '#c25100', ''), ('causal, held out', 5, '#0b62a4', '3 5'),
          ('denoising, held out', 6, '#c25100', '3 5'))


def draw_curve(table, path):
    last = max(table[-1][0], 1)
    values = [row[k] for row in table for k in (2, 3, 5, 6) if k < len(row)]
    low, high = math.floor(math.log10(max(min(values), 1e-4))), math.ceil(math.log10(max(values)))

    def x(step):
        return LEFT + (WIDTH - LEFT - RIGHT) * step / last

    def y(loss):
        return TOP + (HEIGHT - TOP - BOTTOM) * (high - math.log10(max(loss, 10 ** low))) / max(high - low, 1)
    out = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" font-family="sans-serif" font-size="12">',
           f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#fff"/>',
           f'<text x="{LEFT}" y="20" font-size="14">nano: loss in nats a token, by step ({last} steps, {table[-1][1] / 60:.0f} minutes)</text>']
    for power in range(low, high + 1):
        for k in (1, 2, 5):
            loss = k * 10.0 ** power
            if loss <= 10.0 ** high:
                out.append(f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(loss):.1f}" y2="{y(loss):.1f}" stroke="#ddd"/>'
                           f'<text x="{LEFT - 6}" y="{y(loss) + 4:.1f}" text-anchor="end">{loss:g}</text>')
    for i in range(6):
        step = last * i // 5
        out.append(f'<text x="{x(step):.1f}" y="{HEIGHT - 28}" text-anchor="middle">{step}</text>')
    for i, (name, k, colour, dash) in enumerate(SERIES):
        points = ' '.join(f'{x(row[0]):.1f},{y(row[k]):.1f}' for row in table if k < len(row))
        out.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5" stroke-dasharray="{dash}"/>')
        at = LEFT + 170 * i
        out.append(f'<line x1="{at}" x2="{at + 24}" y1="{HEIGHT - 10}" y2="{HEIGHT - 10}" stroke="{colour}" stroke-width="2" '
                   f'stroke-dasharray="{dash}"/><text x="{at + 30}" y="{HEIGHT - 6}">{name}</text>')
    with open(path, 'w', encoding='utf-8') as file:
        file.write('\n'.join(out) + '\n</svg>\n')
