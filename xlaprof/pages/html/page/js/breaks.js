// Graph breaks of torch.compile: each function as a tree of its graphs and the breaks between them.
function breaksSection() {
  if (!DATA.breaks.length) return null;
  return section('breaks', 'Graph breaks', `${plural(DATA.breaks.length, 'function')} cut into pieces`, h('ul', {class: 'tree'}, DATA.breaks.map(functionTree)));
}
function functionTree(one) {
  return h('li', null, h('div', {class: 'graph'}, h('b', {class: 'text', text: one.name}), ' ', placeName(place(one.place)), h('span', {class: 'soft', text: ` ${one.graphs}, compiled in ${one.compile}`})),
    h('ul', null, one.breaks.map(breakItem)));
}
function breakItem(one) {
  const behind = one.plain ? h('li', null, h('div', {class: 'plain', text: 'This code runs as plain Python.'}))
    : h('li', null, h('div', {class: 'graph', text: one.breaks.length ? 'What follows is another graph, cut again:' : 'What follows is another graph.'}), one.breaks.length ? h('ul', null, one.breaks.map(breakItem)) : null);
  return h('li', null, h('div', {class: 'break'},
    h('p', null, h('b', {class: 'text', text: one.reason}), h('span', {class: 'soft', text: ` ${one.times}${one.vain ? `, ${one.vain} of tracing in vain` : ''}`}), one.by_design ? h('span', {class: 'pill', text: 'by design'}) : null),
    h('p', null, placeName(place(one.place))),
    one.explanation && one.explanation !== one.reason ? h('p', {class: 'soft text', text: one.explanation}) : null,
    one.hint ? h('p', {class: 'fix text'}, h('b', {text: 'Fix: '}), one.hint) : null,
    one.number ? h('p', {class: 'soft', text: `PyTorch calls it ${one.number}`}) : null), h('ul', null, behind));
}
