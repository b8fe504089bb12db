// What is told of something on the timeline: its length, its line, and of a gap what is to blame.
function name({row, hit}) {
  if (hit.kind === 'cell') return 'sums of what is shorter';
  const text = DATA.labels[row.label[hit.n]][0];
  return row.of === 'gap' ? `idle: ${text}` : text;
}
function placeOf({row, hit}) { return hit.kind === 'span' ? place(row.place[hit.n]) : null; }
function blameOf({row, hit}) {
  if (!row.blame || hit.kind !== 'span') return null;
  const from = row.blameAt[hit.n], parts = [];
  for (let k = 0; k < row.blame[from + 1]; k++) parts.push([DATA.labels[row.blame[from + 2 + 2 * k]], row.blame[from + 3 + 2 * k]]);
  return {step: row.blame[from], parts};
}
function short(one) {
  const {row, hit} = one;
  if (hit.kind === 'cell') {
    return [h('b', {text: `${duration(row.cellStart[hit.n] * UNIT_S)}: sums over ${duration(row.cell * UNIT_S)}`}),
      row.partsOfCell(hit.n).sort((a, b) => b[1] - a[1]).slice(0, 4).map(([label, ns, many]) => h('div', {class: 'text'}, swatch(DATA.labels[label][1]), `${DATA.labels[label][0]} ${duration(ns * UNIT_S)}, ${count(many)} x`))];
  }
  const where = placeOf(one), blame = blameOf(one);
  return [h('b', {class: 'text', text: `${name(one)}: ${duration(row.length[hit.n] * UNIT_S)}`}),
    blame ? blame.parts.slice(0, 3).map(([label, ns]) => h('div', {class: 'text'}, swatch(label[1]), `${label[0]} ${duration(ns * UNIT_S)}`)) : null,
    where ? h('div', {class: 'text mono', text: `${where.short} ${where.code}`.slice(0, 160)}) : null];
}
function told(one) {
  const {row, hit} = one;
  if (hit.kind === 'cell') {
    const parts = row.partsOfCell(hit.n).sort((a, b) => b[1] - a[1]);
    return [h('p', null, h('b', {text: `${row.title}: sums over ${duration(row.cell * UNIT_S)}`}), ` from ${duration(row.cellStart[hit.n] * UNIT_S)} on`),
      h('div', {class: 'blame'}, bars(parts.map(([label, ns, many]) => [DATA.labels[label][0], ns / row.cell, duration(ns * UNIT_S), `${count(many)} x`, DATA.labels[label][1]])))];
  }
  const where = placeOf(one), blame = blameOf(one), length = row.length[hit.n];
  const at = row.start[hit.n] * TIME.unit_ns;
  return [
    h('p', null, swatch(DATA.labels[row.label[hit.n]][1]), h('b', {class: 'text', text: row.of === 'gap' ? 'Device idle' : name(one)}), `: ${duration(length * UNIT_S)} at ${duration(at / 1e9)}`,
      blame && blame.step >= 0 ? `, in step ${count(blame.step)}` : '', h('span', {class: 'soft', text: row.of === 'gap' ? '' : ` (${row.title})`})),
    blame ? h('div', {class: 'blame'}, h('p', {class: 'soft', text: 'To blame:'}), bars(blame.parts.map(([label, ns]) => [label[0], ns / Math.max(1, length), duration(ns * UNIT_S), percent(ns / Math.max(1, length)), label[1]]))) : null,
    where ? h('p', {class: 'line'}, placeName(where, 'Line: ')) : null,
    h('div', {class: 'links'}, findingsAt(where, at, length * TIME.unit_ns).map(findingLink)),
  ];
}
// Findings whose line this is, or that happened then.
function findingsAt(where, at, length) {
  const numbers = new Set();
  for (const finding of DATA.findings) {
    if (where && finding.line && finding.file === where.file && finding.line === where.line) numbers.add(finding.number);
    for (const one of finding.happened ? finding.happened.first : []) {
      if (Math.abs(one.at_ns - at) < 1000 && Math.abs(one.dur_ns - length) < Math.max(1000, length / 2)) numbers.add(finding.number);
    }
  }
  return [...numbers].sort((a, b) => a - b);
}
