// Colours of the parts of a step and of the causes of idle time, one for each in all charts.
const VARIABLES = {
  'device': '--p-device', 'device busy': '--p-device', 'compile': '--p-compile', 'tracing': '--p-tracing', 'upload': '--p-upload',
  'dispatch': '--p-dispatch', 'transfer wait': '--p-transfer', 'fallback': '--p-fallback', 'data wait': '--p-data',
  'garbage collection': '--p-gc', 'named scopes': '--p-scopes', 'python': '--p-python', 'waiting': '--p-waiting',
  'waiting for a processor': '--p-waiting', "waiting for the interpreter's lock": '--p-waiting', 'other': '--p-other',
  'step': '--p-step', 'checkpoint': '--p-checkpoint', 'import': '--p-import', 'graph break': '--p-break',
};
let palette = new Map();
const REDRAW = [];
function variable(name) {
  let found = palette.get(name);
  if (found === undefined) {
    found = getComputedStyle(document.documentElement).getPropertyValue(name).trim();
    palette.set(name, found);
  }
  return found;
}
function colour(part) { return variable(VARIABLES[part] || '--p-other'); }
function themed() {
  palette = new Map();
  for (const redraw of REDRAW) redraw();
}
function swatch(part) {
  const dot = h('i', {class: 'swatch', 'aria-hidden': 'true'});
  dot.style.background = `var(${VARIABLES[part] || '--p-other'})`;
  return dot;
}
function legend(parts) {
  return h('ul', {class: 'legend', 'aria-label': 'Colours'}, parts.map((part) => h('li', null, swatch(part), part)));
}
// A horizontal bar of a share of the whole.
function track(share, part) {
  const inner = h('i');
  inner.style.width = `${Math.max(share > 0 ? 0.5 : 0, Math.min(1, share) * 100)}%`;
  inner.style.background = `var(${VARIABLES[part] || '--p-other'})`;
  return h('div', {class: 'track', 'aria-hidden': 'true'}, inner);
}
function bars(rows) {
  return h('div', {class: 'bars', role: 'table'}, rows.map(([name, share, figure, of, part]) => h('div', {role: 'row', class: 'r'},
    h('span', {class: 'name text', role: 'cell', text: name}), track(share, part || name),
    h('span', {class: 'figure', role: 'cell', text: figure}), h('span', {class: 'figure soft', role: 'cell', text: of}))));
}
