// What was alive on the device over the run, and what programs of JAX need while they run.
const MEMORY = DATA.memory;
function memorySection() {
  if (!MEMORY.course.length && !MEMORY.programs.length) return null;
  return section('memory', 'Memory', MEMORY.note, MEMORY.course.length ? [memoryChart(), retained()] : null, MEMORY.programs.length ? table('Programs of JAX, bytes of one device while they run', [
    {title: 'program', key: (one) => one.name, show: (one) => [h('b', {class: 'text', text: one.name}), ' ', placeName(place(one.place))]},
    {title: 'needs', number: true, key: (one) => one.bytes, show: (one) => one.needs},
    ...[['arguments', 'arguments'], ['results', 'results'], ['between', 'temporary'], ['donated', 'donated'], ['devices', 'devices'], ['runs', 'runs']].map(([title, key]) => ({title, number: true, show: (one) => one[key]})),
  ], MEMORY.programs, {many: 20}) : null);
}
function memoryChart() {
  const course = MEMORY.course, begin = course[0].at_s, length = Math.max(course[course.length - 1].at_s - begin, 1e-9), top = Math.max(1, ...course.map((one) => one.bytes));
  const points = [];
  course.forEach((one, n) => {
    const x = (one.at_s - begin) / length * 1000, y = 100 - one.bytes / top * 100;
    if (n) points.push(`${x},${100 - course[n - 1].bytes / top * 100}`);
    points.push(`${x},${y}`);
  });
  const area = svg('polygon', {points: `0,100 ${points.join(' ')} 1000,100`, fill: 'var(--p-device)'});
  const several = (number, noun) => `${number} ${noun}${number === '1' ? '' : 's'}`;
  const told = (one) => `${one.size} in ${several(one.tensors, 'tensor')}, ${several(one.programs, 'program')} at ${one.at}`;
  const picture = svg('svg', {class: 'alive', viewBox: '0 0 1000 100', preserveAspectRatio: 'none', role: 'img', 'aria-label': `Bytes alive over the run, at most ${told(MEMORY.most)}`}, area);
  return h('figure', null, h('dl', {class: 'worth'}, [['last', MEMORY.last], ['most', MEMORY.most]].map(([name, one]) => [h('dt', {text: name}), h('dd', {text: told(one)})])), picture,
    h('p', {class: 'keys', text: `From ${course[0].at} to ${course[course.length - 1].at}; the height is ${MEMORY.most.size}. What programs need while they run is not part of it.`}),
    more('The figures of this chart as a table', () => table('Readings', [
      {title: 'at', number: true, key: (one) => one.at_s, show: (one) => one.at},
      {title: 'alive', number: true, key: (one) => one.bytes, show: (one) => one.size}, {title: 'tensors', number: true, show: (one) => one.tensors}, {title: 'programs', number: true, show: (one) => one.programs},
    ], course)));
}
function retained() {
  if (!MEMORY.held.length && !MEMORY.kept) return null;
  return [h('h3', {class: 'sub', text: 'What stays alive'}), h('ul', {class: 'evidence'}, MEMORY.held.map(([tensors, size, at]) => h('li', null, `${tensors}, ${size} of those looked at, made at `, placeName(place(at)) || 'a line that is not known')),
    MEMORY.kept ? h('li', {class: 'text'}, MEMORY.kept.text, MEMORY.kept.places.map((at) => [' ', placeName(place(at), 'filled at ')])) : null)];
}
