// The step chart: time of each step stacked by cause, over the whole run; the first step, which compiles, apart.
const [S_START, S_FIRST, S_LAST, S_COUNT, S_TOTAL, S_MOST, S_BUSY, S_PARTS] = [0, 1, 2, 3, 4, 5, 6, 7];
const STACKED = DATA.parts;
let stepPlot = null;
function stepName(row) {
  return row[S_COUNT] === 1 ? `step ${count(row[S_FIRST])}` : `steps ${count(row[S_FIRST])} to ${count(row[S_LAST])} (mean of ${count(row[S_COUNT])})`;
}
function stepParts(row) {
  return STACKED.map((name, n) => [name, row[S_PARTS + n] / row[S_COUNT]]).filter(([, ns]) => ns > 0);
}
function stepsSection() {
  const figures = DATA.figures;
  if (!figures.length) return null;
  const stats = table('Steps by name', [
    {title: 'name', show: (one) => h('span', {class: 'text', text: one.name})},
    ...[['steps', 'count'], ['median', 'median'], ['p95', 'p95'], ['max', 'max'], ['first', 'first']].map(([title, key]) => ({title, number: true, show: (one) => one[key]})),
  ], figures);
  const main = figures[0];
  const split = main.split.length ? h('div', {class: 'halves sub'}, h('div', null, h('h3', {text: "Where a step's time goes"}), h('p', {class: 'soft', text: main.note}),
    bars(main.split.map(([name, value, figure, of]) => [name, value / main.split.reduce((sum, one) => sum + one[1], 0), figure, of])),
    main.busy ? h('div', {class: 'sub'}, bars([['device busy', Math.min(1, parseFloat(main.busy[2]) / 100 || 0.004), main.busy[1], main.busy[2]]])) : null)) : null;
  return section('steps', 'Steps', DATA.head.since, DATA.steps.length ? stepChart() : null, stats, split);
}
function stepChart() {
  let series = DATA.steps[0], picked = -1;
  const rowsOf = () => (series.rows.length ? series.rows : series.first ? [series.first] : []);
  let rows = rowsOf();
  const marks = new Map(); // row -> findings that happened in it
  const mark = () => {
    marks.clear();
    for (const finding of DATA.findings) {
      const at = new Set((finding.happened ? finding.happened.first : []).map((one) => rowAt(one.at_ns)).filter((n) => n >= 0));
      for (const n of at) {
        if (!marks.has(n)) marks.set(n, {numbers: new Set(), rare: false});
        marks.get(n).numbers.add(finding.number);
        marks.get(n).rare ||= at.size <= rows.length / 4; // what comes in every step would only be noise
      }
    }
  };
  function rowAt(ns) {
    let low = 0, high = rows.length - 1, found = -1;
    while (low <= high) {
      const middle = (low + high) >> 1;
      if (rows[middle][S_START] <= ns) { found = middle; low = middle + 1; } else high = middle - 1;
    }
    const row = rows[found];
    return row && (row[S_COUNT] > 1 || ns <= row[S_START] + row[S_TOTAL]) ? found : -1;
  }
  mark();
  const HEIGHT = 220, TOP = 18, BOTTOM = 26;
  const ceiling = () => {
    const means = rows.map((row) => row[S_TOTAL] / row[S_COUNT]).sort((a, b) => a - b);
    const median = means[(means.length - 1) >> 1] || 1, top = means[means.length - 1] || 1;
    return Math.min(top, 4 * median) || 1;
  };
  let top = ceiling();
  const picks = h('div', {class: 'picked', role: 'status', 'aria-live': 'polite'}, h('p', {class: 'soft', text: 'Pick a step to see where its time went.'}));
  const range = h('span', {class: 'range'});
  const plot = stepPlot = new Plot({
    label: `Time of each step, stacked by cause, ${plural(rows.length, 'bar')}. Arrow keys pick a step, + and - zoom, Home shows all. The figures are in the table below.`,
    height: () => HEIGHT, whole: rows.length || 1, least: Math.min(rows.length || 1, 4), draw, hover, pick: (x) => pick(barAt(x)), keys,
  });
  function barAt(x) { return Math.max(0, Math.min(rows.length - 1, Math.floor(plot.value(x)))); }
  function draw(pen, width, height) {
    const room = height - TOP - BOTTOM, [from, to] = plot.range;
    pen.font = '11px system-ui, sans-serif';
    pen.fillStyle = variable('--soft');
    const [levels] = ticks(0, top / 1e9, room, 44);
    for (const level of levels) {
      const y = Math.round(TOP + room - level * 1e9 / top * room) + 0.5;
      pen.strokeStyle = variable('--line');
      pen.beginPath(); pen.moveTo(0, y); pen.lineTo(width, y); pen.stroke();
    }
    const first = Math.floor(from), last = Math.min(rows.length, Math.ceil(to));
    const each = width / (to - from), gap = each > 5 ? 1 : 0;
    const several = Math.max(1, Math.floor(1 / each)); // bars to a pixel
    for (let n = first; n < last; n += several) {
      // of several bars in one pixel the longest is drawn: nothing that stands out is lost
      let row = rows[n];
      for (let other = n + 1; other < Math.min(last, n + several); other++) {
        if (rows[other][S_TOTAL] / rows[other][S_COUNT] > row[S_TOTAL] / row[S_COUNT]) row = rows[other];
      }
      const x = plot.x(n), wide = Math.max(1, each * several - gap), mean = row[S_TOTAL] / row[S_COUNT];
      const squeeze = mean > top ? top / mean : 1;
      let y = TOP + room;
      for (let part = 0; part < STACKED.length; part++) {
        const ns = row[S_PARTS + part] / row[S_COUNT];
        if (ns <= 0) continue;
        const high = ns * squeeze / top * room;
        pen.fillStyle = colour(STACKED[part]);
        pen.fillRect(x, y - high, wide, high);
        y -= high;
      }
      if (row[S_BUSY] > 0) {
        const high = Math.min(1, row[S_BUSY] / row[S_COUNT] / Math.max(mean, 1)) * Math.max(1, wide);
        pen.fillStyle = colour('device');
        pen.fillRect(x, TOP + room + 1, high, 4);
      }
      if (squeeze < 1) {
        pen.fillStyle = variable('--bad');
        pen.fillRect(x, TOP - 6, Math.max(2, wide), 4);
      }
      for (let other = n; other < Math.min(last, n + several); other++) {
        if (!marks.has(other) || !marks.get(other).rare) continue;
        pen.fillStyle = variable('--bad');
        pen.beginPath();
        pen.arc(Math.min(width - 3, Math.max(3, x + wide / 2)), TOP + room + 10, 2.5, 0, 7);
        pen.fill();
        break;
      }
    }
    if (picked >= first && picked < last) {
      pen.strokeStyle = variable('--text');
      pen.lineWidth = 1.5;
      pen.strokeRect(plot.x(picked), TOP - 1, Math.max(2, each - gap), room + 2);
      pen.lineWidth = 1;
    }
    pen.textBaseline = 'alphabetic';
    for (const level of levels) {
      if (!level) continue;
      const text = duration(level), y = Math.round(TOP + room - level * 1e9 / top * room);
      pen.fillStyle = variable('--sunk');
      pen.globalAlpha = 0.75;
      pen.fillRect(2, y - 12, pen.measureText(text).width + 4, 12);
      pen.globalAlpha = 1;
      pen.fillStyle = variable('--soft');
      pen.fillText(text, 4, y - 2);
    }
    const [at] = ticks(from, to, width, 90);
    pen.fillStyle = variable('--soft');
    for (const n of at) {
      const row = rows[Math.floor(n)];
      if (!row || n !== Math.floor(n)) continue;
      const text = count(row[S_FIRST]);
      pen.fillText(text, Math.min(width - pen.measureText(text).width - 2, plot.x(n) + 1), height - 4);
    }
    range.textContent = rows.length ? `${stepName(rows[first])} - ${stepName(rows[Math.max(first, last - 1)])}` : '';
  }
  function hover(x, y) {
    const row = rows[barAt(x)];
    if (!row) return plot.tell();
    const parts = stepParts(row).sort((a, b) => b[1] - a[1]).slice(0, 3);
    return plot.tell(x, y, h('b', {text: `${stepName(row)}: ${duration(row[S_TOTAL] / row[S_COUNT] / 1e9)}`}), parts.map(([name, ns]) => h('div', null, swatch(name), `${name} ${duration(ns / 1e9)}`)));
  }
  function pick(n) {
    if (!rows[n]) return;
    picked = n;
    plot.focusAt = n + 0.5;
    if (n < plot.range[0] || n + 1 > plot.range[1]) plot.show(n - (plot.range[1] - plot.range[0]) / 2, n + (plot.range[1] - plot.range[0]) / 2);
    fill(picks, told(rows[n], marks.get(n)));
    plot.redraw();
  }
  function told(row, found) {
    const mean = row[S_TOTAL] / row[S_COUNT], parts = stepParts(row).sort((a, b) => b[1] - a[1]);
    return [h('p', null, h('b', {text: `${stepName(row)}: ${duration(mean / 1e9)}`}), row[S_COUNT] > 1 ? `, the longest ${duration(row[S_MOST] / 1e9)}` : '',
      row[S_BUSY] ? `, device busy ${duration(row[S_BUSY] / row[S_COUNT] / 1e9)}` : ''),
    h('div', {class: 'blame'}, bars(parts.map(([name, ns]) => [name, ns / mean, duration(ns / 1e9), percent(ns / mean)]))),
    h('div', {class: 'links'}, DATA.timeline.rows.length ? h('button', {type: 'button', class: 'link', text: 'Show on the timeline', onclick: () => goToTimeline(row[S_START], row[S_START] + Math.max(row[S_TOTAL], 1))}) : null,
      [...found ? found.numbers : []].sort((a, b) => a - b).map((number) => findingLink(number)))];
  }
  function keys(event) {
    const by = {ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10}[event.key];
    if (by) { pick(Math.max(0, Math.min(rows.length - 1, (picked < 0 ? (by > 0 ? -by : rows.length) + Math.max(0, Math.floor(plot.range[0])) : picked) + by))); return true; }
    if (event.key === 'End') { pick(rows.length - 1); return true; }
    return false;
  }
  const first = h('p');
  function tellFirst() {
    fill(first, series.first && series.rows.length ? [h('b', {text: `First ${stepName(series.first)}: ${duration(series.first[S_TOTAL] / 1e9)}`}), ', apart: ',
      stepParts(series.first).sort((a, b) => b[1] - a[1]).slice(0, 4).map(([name, ns], n) => [n ? ', ' : '', swatch(name), `${name} ${duration(ns / 1e9)}`]), ' ',
      h('button', {type: 'button', class: 'link', text: 'where its time went', onclick: () => fill(picks, told(series.first))})] : null);
  }
  tellFirst();
  const choice = DATA.steps.length > 1 ? h('select', {'aria-label': 'Steps of which name', onchange: (event) => {
    series = DATA.steps[event.target.selectedIndex];
    rows = rowsOf();
    picked = -1;
    top = ceiling();
    mark();
    tellFirst();
    plot.whole = rows.length || 1;
    plot.least = Math.min(rows.length || 1, 4);
    plot.show(0, plot.whole);
  }}, DATA.steps.map((one) => h('option', {text: one.name}))) : null;
  const used = STACKED.filter((_, n) => DATA.steps.some((one) => [one.first, ...one.rows].some((row) => row && row[S_PARTS + n] > 0)));
  const cut = rows.some((row) => row[S_TOTAL] / row[S_COUNT] > top);
  return h('figure', null, h('div', {class: 'tools'}, choice, plot.buttons(), range), first, plot.element, legend(used),
    h('p', {class: 'keys', text: `${cut ? 'A red mark above a bar: it is longer than the chart is high. ' : ''}${[...marks.values()].some((one) => one.rare) ? 'A red dot under a bar: a finding that comes in few steps happened in it. ' : ''}${rows.some((row) => row[S_BUSY]) ? 'The green line under a bar: the share in which the device was busy. ' : ''}Wheel over the chart, once it is clicked, zooms; drag moves.`}),
    picks, more('The figures of this chart as a table', () => table('Time of steps by cause', [
      {title: 'step', key: (row) => row[S_FIRST], show: stepName},
      {title: 'time', number: true, key: (row) => row[S_TOTAL] / row[S_COUNT], show: (row) => duration(row[S_TOTAL] / row[S_COUNT] / 1e9)},
      {title: 'longest', number: true, key: (row) => row[S_MOST], show: (row) => duration(row[S_MOST] / 1e9)},
      {title: 'device busy', number: true, key: (row) => row[S_BUSY] / row[S_COUNT], show: (row) => duration(row[S_BUSY] / row[S_COUNT] / 1e9)},
      ...used.map((name) => ({title: name, number: true, key: (row) => row[S_PARTS + STACKED.indexOf(name)] / row[S_COUNT], show: (row) => row[S_PARTS + STACKED.indexOf(name)] ? duration(row[S_PARTS + STACKED.indexOf(name)] / row[S_COUNT] / 1e9) : '-'})),
    ], [...(series.first && series.rows.length ? [series.first] : []), ...rows])));
}
