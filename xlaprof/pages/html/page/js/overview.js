// What the run was, how it ended, where its time went.
function overviewSection() {
  const head = DATA.head;
  const element = section('overview', head.program, null,
    head.argv && head.argv !== head.program ? h('p', {class: 'command mono text', text: head.argv}) : null,
    h('p', {class: 'facts'}, [...head.facts, head.events].map((fact) => h('span', {class: 'text', text: fact}))),
    h('p', {class: 'facts'}, h('span', {class: 'mono text', text: head.path}), head.ended ? h('span', {class: 'good', text: head.ended}) : null, head.since ? h('span', {text: head.since}) : null),
    head.amiss.map((text) => h('p', {class: 'notice', text})), head.verdict ? h('p', {class: `notice ${head.observed ? 'fine' : 'plain'}`, text: head.verdict}) : null, cards());
  SECTIONS[SECTIONS.length - 1][1] = 'Overview';
  const heading = element.querySelector('h2');
  const one = h('h1', {id: heading.id, class: 'text', text: head.program});
  heading.replaceWith(one);
  return element;
}
function cards() {
  const head = DATA.head, main = DATA.figures[0];
  const one = (figure, label) => h('div', {class: 'card'}, h('b', {class: 'text', text: figure}), h('span', {class: 'text', text: label}));
  return h('div', {class: 'cards'}, one(head.wall, 'recorded'), one(String(DATA.findings.length), DATA.findings.length === 1 ? 'finding' : 'findings'),
    main ? one(main.median, `median of ${main.count} ${main.count === '1' ? 'step' : 'steps'} (${main.name})`) : null, main && main.count !== '1' ? one(main.first, 'first step') : null,
    DATA.idle.note ? one(DATA.idle.note.split(' ')[0], 'of the device idle') : null,
    DATA.graphs.count ? one(count(DATA.graphs.count), DATA.graphs.count === 1 ? 'graph compiled' : 'graphs compiled') : null,
    DATA.torch_compile.count ? one(count(DATA.torch_compile.count), 'functions of torch.compile') : null,
    DATA.jax.count ? one(count(DATA.jax.count), 'functions of JAX') : null);
}
const ACCOUNT_PARTS = {'explained by findings': '--bad', 'normal': '--p-other', 'unexplained': '--warn'};
function timeSection() {
  if (!DATA.accounts.length && !DATA.idle.causes.length) return null;
  const accounts = DATA.accounts.length ? h('div', null, h('h3', {text: "The run's time, each second in one account"}), h('ul', {class: 'accounts'}, DATA.accounts.map(account)),
    h('ul', {class: 'legend'}, Object.entries(ACCOUNT_PARTS).map(([title, name]) => { const dot = h('i', {'aria-hidden': 'true'}); dot.style.background = `var(${name})`; return h('li', null, dot, title); }))) : null;
  const idle = DATA.idle.causes.length ? h('div', null, h('h3', {text: 'Device idle, by cause'}), h('p', {class: 'soft', text: DATA.idle.note}),
    bars(DATA.idle.causes.slice(0, 12).map(([name, seconds, figure, of, part]) => [name, seconds / DATA.idle.causes.reduce((sum, one) => sum + one[1], 0), figure, of, part])),
    DATA.idle.causes.length > 12 ? more(`${plural(DATA.idle.causes.length - 12, 'more cause')}`, () => bars(DATA.idle.causes.slice(12).map(([name, seconds, figure, of, part]) => [name, seconds / DATA.idle.causes[0][1], figure, of, part]))) : null) : null;
  return section('time', 'Time', '', h('div', {class: 'halves'}, accounts, idle));
}
function account(one) {
  const meter = h('div', {class: 'meter', 'aria-hidden': 'true'});
  for (const [title, seconds] of one.split) {
    const bar = h('i');
    bar.style.width = `${seconds / Math.max(1e-12, one.total_s) * one.share * 100}%`;
    bar.style.background = `var(${ACCOUNT_PARTS[title]})`;
    meter.append(bar);
  }
  return h('li', null, h('div', {class: 'text', text: one.text}), meter, one.findings.length ? h('div', {class: 'links'}, one.findings.slice(0, 8).map(findingLink).flatMap((link, n) => n ? [', ', link] : [link])) : null);
}
function scopesSection() {
  if (!DATA.scopes.length) return null;
  const whole = Math.max(1e-12, ...DATA.scopes.map((one) => one.total_s));
  return section('scopes', 'Scopes', '', table('Named scopes', [
    {title: 'scope', key: (one) => one.name, show: (one) => [h('b', {class: 'text', text: one.name}), one.errors ? h('span', {class: 'warn', text: ` (${one.errors})`}) : null, track(one.total_s / whole, 'named scopes')]},
    ...['count', 'total', 'self', 'median', 'max'].map((title) => ({title, number: true, show: (one) => one[title], ...(title === 'total' ? {key: (one) => one.total_s} : NOTHING)})),
    {title: 'device idle', number: true, show: (one) => one.idle},
  ], DATA.scopes));
}
function transfersSection() {
  if (!DATA.transfers.length) return null;
  return section('transfers', 'Transfers', 'Copies between host and device, by line', table('Transfers', [
    {title: 'way', key: (one) => one.way, show: (one) => one.way},
    {title: 'operation', key: (one) => one.op, show: (one) => h('span', {class: 'mono text', text: one.op})},
    {title: 'line', show: (one) => placeName(place(one.place))},
    {title: 'count', number: true, show: (one) => one.count},
    {title: 'total', number: true, key: (one) => one.seconds, show: (one) => one.total},
    {title: 'of it waiting', number: true, show: (one) => one.wait},
    {title: 'size', number: true, show: (one) => one.size},
  ], DATA.transfers));
}
function countersSection() {
  if (!DATA.counters.length) return null;
  return section('counters', 'Counters', "PyTorch/XLA's names", table('Counters', [{title: 'name', key: (one) => one[0], show: (one) => h('span', {class: 'mono text', text: one[0]})}, {title: 'count', number: true, show: (one) => one[1]}, {title: 'time', number: true, show: (one) => one[2]}], DATA.counters));
}
