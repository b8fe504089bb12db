// The findings, the one whose fix gives back most first.
function findingLink(number) {
  const finding = DATA.findings[number - 1];
  return h('button', {type: 'button', class: 'link', onclick: () => goToFinding(number)}, `Finding ${number}: ${finding.kind}`);
}
let findingList = null;
function goToFinding(number) {
  findingList.reveal(number - 1);
  const element = document.getElementById(`finding-${number}`);
  element.querySelector('details').open = true;
  go(element);
}
function findingsSection() {
  const head = DATA.head, many = DATA.findings.length;
  if (!many) return section('findings', 'Findings', '', h('p', {class: head.observed ? 'good' : 'soft', text: head.verdict}));
  const list = h('div');
  findingList = list;
  return section('findings', 'Findings', `${head.found}, the one whose fix gives back most first`, paged(DATA.findings, 20, findingItem, list),
    head.prediction ? h('p', {class: 'notice fine', text: head.prediction}) : null);
}
function findingItem(one) {
  const inside = h('div', {class: 'inside'});
  const summary = h('summary', null,
    h('h3', {id: `finding-${one.number}-title`}, h('span', {class: 'number', text: one.number}), h('span', {text: one.kind}), h('span', {class: `pill ${one.severity}`, text: one.severity}),
      one.confidence === 'high' ? null : h('span', {class: 'pill', text: `${one.confidence} confidence`}), one.operation ? h('span', {class: 'soft mono text', text: one.operation}) : null),
    h('div', {class: 'right'}, one.count, ' ', h('b', {text: one.cost})),
    h('div', {class: 'place'}, h('span', {class: 'mono text', text: one.where}), one.func ? [' in ', h('span', {class: 'text', text: one.func})] : null),
    h('div', {class: 'right gain', text: [one.rhythm, one.gain].filter(Boolean).join('   ')}));
  const details = h('details', {open: one.number <= 3 || null}, summary, inside);
  let built = false;
  const build = () => { if (details.open && !built) { built = true; append(inside, findingInside(one)); } };
  details.addEventListener('toggle', build);
  build();
  return h('article', {class: `finding ${one.severity}`, id: `finding-${one.number}`, tabindex: '-1', 'aria-labelledby': `finding-${one.number}-title`}, details);
}
function findingInside(one) {
  return [
    codeBox(one.code),
    one.library.length ? h('div', {class: 'soft'}, one.library.map((line) => h('p', {class: 'mono text', text: `in ${line}`}))) : null,
    one.module ? h('p', {class: 'soft text', text: `in module ${one.module}`}) : null,
    h('p', {class: 'text', text: one.cause}),
    one.parts.map((part) => h('p', {class: 'text', text: part})),
    one.change ? h('p', {class: 'change'}, h('span', {class: 'soft', text: `${one.change.what}:`}), h('code', {class: 'old text', text: one.change.old}), h('span', {'aria-hidden': 'true', text: '\u2192'}), h('span', {class: 'unseen', text: 'became'}), h('code', {class: 'new text', text: one.change.new})) : null,
    h('p', {class: 'fix text'}, h('b', {text: 'Fix: '}), one.advice),
    one.remedy ? h('div', null, h('h3', {class: 'sub', text: 'Code that does it'}), snippet(one.remedy)) : null,
    one.buckets.length ? table('Sizes to pad to', ['sizes', 'pad to', 'compiles', 'saved', 'padding', 'cost'].map((title, n) => ({title, number: n !== 1, show: (row) => row[n]})), one.buckets, {rowClass: (row) => row[6] ? 'best' : null}) : null,
    worthOf(one),
    one.values.length ? h('div', null, h('h3', {class: 'sub', text: 'Values seen, in order of first use'}), bars(one.values.slice(0, 20).map(([value, many]) => [value, many / Math.max(...one.values.map((row) => row[1])), `${count(many)} x`, '', 'tracing'])),
      one.values.length > 20 || one.values_left_out ? h('p', {class: 'soft', text: `and ${count(one.values.length - 20 + one.values_left_out)} more`}) : null) : null,
    one.evidence.length ? h('div', null, h('h3', {class: 'sub', text: 'Evidence'}), h('ul', {class: 'evidence'}, one.evidence.map((fact) => h('li', {class: 'text', text: fact})))) : null,
    one.happened && one.happened.total ? happened(one) : null,
    one.also.length ? h('div', null, h('h3', {class: 'sub', text: 'Other lines that take part'}), one.also.map((other) => h('div', null, h('p', {class: 'mono soft text', text: other.where}), codeBox(other.code)))) : null,
    h('p', {class: 'soft'}, 'More: ', h('code', {class: 'text', text: one.explain}), ' ', h('span', {class: 'mono', text: one.id})),
  ];
}
function worthOf(one) {
  return h('dl', {class: 'worth'}, one.worth.map(([label, text]) => [h('dt', {text: label}), h('dd', {text})]));
}
function codeBox(code) {
  return h('div', null, code.remark ? h('p', {class: 'remark', text: code.remark}) : null, code.lines.length ? h('div', {class: 'codebox mono', tabindex: '0', role: 'group', 'aria-label': 'Code'}, code.lines.map(([number, text, marked]) =>
    h('div', {class: marked ? 'l marked' : 'l'}, h('span', {class: 'n', text: number}), h('span', {class: 'c', text: text || ' '}), marked ? h('span', {class: 'unseen', text: ' (this line)'}) : null))) : null);
}
function snippet(text) {
  const button = h('button', {type: 'button', class: 'copy', text: 'Copy', onclick: () => {
    const said = (done) => { button.textContent = done ? 'Copied' : 'Select it by hand'; };
    if (navigator.clipboard) navigator.clipboard.writeText(text).then(() => said(true), () => said(false));
    else said(false);
  }});
  return h('div', {class: 'codebox'}, button, h('pre', {class: 'text', tabindex: '0', text}));
}
function happened(one) {
  const most = Math.max(1, ...one.happened.parts), wide = one.happened.parts.length;
  const spark = svg('svg', {class: 'spark', viewBox: `0 0 ${wide} 10`, preserveAspectRatio: 'none', 'aria-hidden': 'true'}, ...one.happened.parts.map((many, n) => {
    const bar = svg('rect', {x: n, width: 0.85, y: many ? 10 - Math.max(1, 10 * many / most) : 9.6, height: many ? Math.max(1, 10 * many / most) : 0.4});
    bar.style.fill = many ? 'var(--link)' : 'var(--line)';
    return bar;
  }));
  const when = (each) => TIME.rows.length ? h('button', {type: 'button', class: 'link', text: each.at, 'aria-label': `Show ${each.at} on the timeline`, onclick: () => goToTimeline(each.at_ns, each.at_ns + Math.max(each.dur_ns, 1000))}) : each.at;
  const columns = [{title: 'at', number: true, key: (each) => each.at_ns, show: when}, {title: 'step', show: (each) => each.step}, {title: 'took', number: true, key: (each) => each.dur_ns, show: (each) => each.dur},
    {title: 'what', show: (each) => h('span', {class: 'text', text: [each.many, each.told].filter(Boolean).join(' ')})}];
  return h('div', null, h('h3', {class: 'sub', text: `When: ${one.happened.text}`}), spark, h('div', {class: 'links'}),
    table('Each time: its moment leads to the timeline', columns, one.happened.first, {many: 6}), one.happened.more > 0 ? h('p', {class: 'soft', text: `and ${count(one.happened.more)} more`}) : null);
}
