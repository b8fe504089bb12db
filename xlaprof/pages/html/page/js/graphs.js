// What was compiled: graphs with their first difference, functions of torch.compile and JAX.
function graphsSection() {
  const {count: many, rows, facts} = DATA.graphs;
  if (!many) return null;
  const longest = Math.max(...rows.map((row) => row.compile_s), 1e-9);
  const list = table('Compiled graphs, in order of compilation', [
    {title: 'graph', number: true, key: (one) => one.program, show: (one) => one.program},
    {title: 'line', key: (one) => (place(one.place) || {short: ''}).short, show: (one) => placeName(place(one.place))},
    {title: 'operations', number: true, key: (one) => one.ops, show: (one) => count(one.ops)},
    {title: 'compiled in', number: true, key: (one) => one.compile_s, show: (one) => [one.compile, one.cached ? h('div', {class: 'soft', text: 'from the cache'}) : null]},
    {title: 'phases', show: (one) => phases(one, longest)},
    {title: 'runs', number: true, key: (one) => one.runs, show: (one) => count(one.runs)},
    {title: 'device', number: true, show: (one) => one.busy},
    {title: 'needs', number: true, key: (one) => one.needs_bytes, show: (one) => one.needs},
    {title: 'first difference from an earlier graph', show: (one) => difference(one)},
    {title: '', show: (one) => TIME.rows.length ? h('button', {type: 'button', class: 'link', text: 'timeline', 'aria-label': `Show the compilation of graph ${one.program} on the timeline`, onclick: () => goToTimeline(one.at_ns, one.at_ns + one.compile_s * 1e9)}) : ''},
  ], rows, {id: 'graph-table'});
  const left = many > rows.length ? `The ${rows.length} that took longest of ${count(many)}. ` : '';
  return section('graphs', 'Graphs', left + facts.join(', '), list);
}
function phases(one, longest) {
  const meter = h('div', {class: 'meter', 'aria-hidden': 'true'});
  const shades = ['--p-tracing', '--p-compile', '--p-other'];
  one.phases.forEach(([, seconds], n) => {
    const bar = h('i');
    bar.style.width = `${seconds / longest * 100}%`;
    bar.style.background = `var(${shades[n]})`;
    meter.append(bar);
  });
  meter.style.minWidth = '80px';
  return [meter, h('span', {class: 'soft', text: one.phases.filter((phase) => phase[1] > 0 && phase[2]).map(([title, , text]) => `${title} ${text}`).join(', ')})];
}
function difference(one) {
  const d = one.difference;
  if (!d) return h('span', {class: 'soft', text: ''});
  return h('div', null,
    h('div', {class: 'change'}, h('span', {class: 'text', text: `${d.text}:`}), h('code', {class: 'old text', text: d.old || 'nothing'}), h('span', {'aria-hidden': 'true', text: '\u2192'}), h('span', {class: 'unseen', text: 'became'}), h('code', {class: 'new text', text: d.new || 'nothing'})),
    h('div', {class: 'soft text'}, d.against ? `against graph ${d.against}, after ${d.common} in common` : `after ${d.common} in common`, d.moved ? `; operations: ${d.moved}` : ''),
    d.places.map(([label, where]) => where ? h('div', {class: 'soft'}, placeName(place(where), `${label} `)) : null));
}
function functionsSection(id, title, noun, done, extra) {
  if (!done.count) return null;
  const list = table(`Functions, the one that took longest first`, [
    {title: 'function', key: (one) => one.name, show: (one) => [h('b', {class: 'text', text: one.name}), ' ', placeName(place(one.place))]},
    {title: 'by', show: (one) => h('span', {class: 'text', text: one.backend})},
    {title: 'compiled in', number: true, key: (one) => one.compile_s, show: (one) => [one.compile, one.phases ? h('div', {class: 'soft text', text: one.phases}) : '']},
    {title: noun, show: (one) => [one.graphs, one.again ? `, ${one.again}` : '']},
    ...(done.rows.some((one) => one.needs.length) ? [{title: 'needs', show: (one) => one.needs.map((text) => h('div', {class: 'text', text}))}] : []),
    ...(done.rows.some((one) => one.breaks || one.plain.length) ? [{title: 'breaks', show: (one) => [one.breaks, one.plain.map((text) => h('div', {class: 'text', text}))]}] : []),
  ], done.rows);
  const whole = Math.max(1e-9, done.charges.reduce((sum, one) => sum + one[2], 0));
  const charges = done.charges.length ? [h('h3', {class: 'sub', text: 'Why this time was spent'}), h('ul', {class: 'evidence'}, done.charges.map(([figure, why, seconds]) => h('li', {class: 'text'}, h('b', {text: figure}), ` (${percent(seconds / whole)}) `, why)))] : null;
  return section(id, title, done.note, list, charges, extra);
}
function torchTpuSection(done) {
  if (!done.count) return null;
  const list = table('Why TorchTPU ran a batch of operations, the most frequent reason first', [
    {title: 'reason', key: (one) => one.reason, show: (one) => h('b', {class: 'text', text: one.reason})},
    {title: 'batches', number: true, key: (one) => one.count, show: (one) => count(one.count)},
    {title: 'what that is', show: (one) => h('span', {class: 'text', text: one.facts})},
    {title: 'behind', show: (one) => one.places.map((at) => h('div', null, placeName(place(at))))},
  ], done.rows);
  return section('torch-tpu', 'TorchTPU', done.note, list, done.text ? h('p', {class: 'text', text: done.text}) : null);
}
function again(calls) {
  return calls.length ? [h('h3', {class: 'sub', text: 'Compiled again, and what differed'}), table('Each call that needed another program', [
    {title: 'function', show: (one) => [h('b', {class: 'text', text: one.name}), ' ', placeName(place(one.place))]},
    {title: 'compiled in', number: true, show: (one) => one.compile},
    {title: 'what differed from the earlier call most like it', show: (one) => one.changes.map(([kind, name, old, now]) => h('div', {class: 'change'}, h('span', {class: 'text', text: `${kind}${name ? ` of ${name}` : ''}:`}), h('code', {class: 'old text', text: old || 'nothing'}), h('span', {'aria-hidden': 'true', text: '\u2192'}), h('code', {class: 'new text', text: now || 'nothing'})))},
    {title: 'when', show: (one) => one.step},
  ], calls, {many: 20})] : null;
}
