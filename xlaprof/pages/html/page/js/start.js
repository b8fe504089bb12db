// Puts the page together.
function navigation() {
  const links = SECTIONS.map(([id, title]) => h('li', null, h('a', {href: `#${id}`, text: title, onclick: (event) => { event.preventDefault(); goToSection(id); history.replaceState(null, '', `#${id}`); }})));
  const list = h('ul', null, links);
  const seen = new IntersectionObserver((entries) => {
    for (const entry of entries) entry.target.dataset.seen = entry.isIntersecting ? '1' : '';
    const current = SECTIONS.find(([id]) => document.getElementById(id).dataset.seen);
    for (const link of list.querySelectorAll('a')) {
      const here = current && link.getAttribute('href') === `#${current[0]}`;
      if (here) link.setAttribute('aria-current', 'true'); else link.removeAttribute('aria-current');
    }
  }, {rootMargin: '-110px 0px -50% 0px'});
  for (const [id] of SECTIONS) seen.observe(document.getElementById(id));
  return h('nav', {'aria-label': 'Sections'}, list);
}
const main = h('main', {id: 'main'});
const bar = h('header', {class: 'bar'});
document.getElementById('page').replaceWith(h('a', {class: 'skip', href: '#findings', text: 'Skip to the findings', onclick: (event) => { event.preventDefault(); goToSection('findings'); }}), bar, main,
  h('footer', {class: 'text', text: `Written by xlaprof ${DATA.version}. ${DATA.head.versions.join(', ')}. This file loads nothing.`}));
const switchTheme = themeSwitch();
append(main, [overviewSection(), findingsSection(), timeSection(), stepsSection(), timelineSection(), graphsSection(),
  functionsSection('torch', 'torch.compile', 'graphs', DATA.torch_compile, again(DATA.again.torch)), breaksSection(),
  functionsSection('jax', 'JAX', 'programs', DATA.jax, again(DATA.again.jax)), torchTpuSection(DATA.torch_tpu), scopesSection(), transfersSection(), memorySection(), sourceSection(), countersSection()]);
bar.append(h('div', {class: 'row'}, h('span', {class: 'brand', text: 'xlaprof'}), h('span', {class: 'name text', text: DATA.head.program}), searchBox(), switchTheme), navigation());
if (location.hash.length > 1) {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  if (target) go(target);
}
// for the console of whoever wants more
window.xlaprof = {data: DATA, duration, percent, timeline, timePlot, stepPlot};
document.documentElement.dataset.ready = 'true';
