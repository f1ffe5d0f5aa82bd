// audit.js: what WCAG 2.2 asks of a page and a program can see. Returns a list of sentences, which is empty if all is well.
(() => {
  const problems = [];
  const shown = (e) => e.checkVisibility({ opacityProperty: true, visibilityProperty: true }) && e.getClientRects().length > 0;
  const name = (e) => e.tagName.toLowerCase() + (e.id ? '#' + e.id : e.className ? '.' + String(e.className).replaceAll(' ', '.') : '') + ` "${e.textContent.trim().slice(0, 30)}"`;

  // WCAG 1.4.3: text must stand out from its background, with a contrast of 4.5, or 3 if it is large.
  const parse = (text) => { const n = text.match(/[\d.]+/g).map(Number); return text.startsWith('color(srgb') ? [...n.slice(0, 3).map((v) => v * 255), n[3] ?? 1] : [n[0], n[1], n[2], n[3] ?? 1]; };
  const over = (top, below) => [0, 1, 2].map((i) => top[i] * top[3] + below[i] * (1 - top[3])).concat(1);
  const light = ([r, g, b]) => { const f = (v) => ((v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4); return 0.2126 * f(r) + 0.7152 * f(g) + 0.0722 * f(b); };
  const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p); return (x + 0.05) / (y + 0.05); };
  function behind(e) {
    const layers = [];
    for (let at = e; at; at = at.parentElement) {
      const colour = parse(getComputedStyle(at).backgroundColor);
      if (colour[3] > 0) layers.push(colour);
      if (colour[3] === 1) break;
    }
    return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255, 1]);
  }
  const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  let tested = 0;
  for (let node = texts.nextNode(); node; node = texts.nextNode()) {
    const e = node.parentElement;
    if (!node.textContent.trim() || !shown(e) || e.closest('.hidden, :disabled, option, noscript, .skip')) continue;
    const style = getComputedStyle(e), size = parseFloat(style.fontSize), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const back = behind(e), found = ratio(over(parse(style.color), back), back);
    tested++;
    if (found < (large ? 3 : 4.5)) problems.push(`contrast ${found.toFixed(2)}: ${name(e)} ${style.color} on ${back.map(Math.round)}`);
  }
  if (tested < 8) problems.push(`only ${tested} texts were tested`);
  for (const e of document.querySelectorAll('input, textarea')) {
    if (!shown(e) || !e.placeholder) continue;
    const found = ratio(parse(getComputedStyle(e, '::placeholder').color), behind(e));
    if (found < 4.5) problems.push(`contrast ${found.toFixed(2)} of the placeholder: ${name(e)}`);
  }
  // 1.4.11: borders of fields
  for (const e of document.querySelectorAll('.more input:not([type=range]), .more select, #search')) {
    const style = getComputedStyle(e), found = ratio(parse(style.borderTopColor), behind(e.parentElement));
    if (shown(e) && found < 3) problems.push(`contrast ${found.toFixed(2)} of the border: ${name(e)}`);
  }

  // Names, references, structure
  const ids = [...document.querySelectorAll('[id]')].map((e) => e.id);
  for (const id of ids.filter((id, i) => ids.indexOf(id) !== i)) problems.push(`two elements have the id ${id}`);
  for (const attribute of ['for', 'aria-labelledby', 'aria-describedby', 'aria-controls'])
    for (const e of document.querySelectorAll(`[${attribute}]`))
      for (const id of e.getAttribute(attribute).split(' ')) if (!ids.includes(id)) problems.push(`${attribute} of ${name(e)} names ${id}, which is not there`);
  for (const e of document.querySelectorAll('img')) if (!e.hasAttribute('alt')) problems.push(`no alt: ${e.src.slice(0, 60)}`);
  for (const e of document.querySelectorAll('[style], [onclick], script:not([src]), style'))
    if (e.tagName === 'STYLE' || e.tagName === 'SCRIPT' || e.hasAttribute('onclick')) problems.push(`inline: ${name(e)}`);
  if (document.querySelectorAll('main').length !== 1 || document.querySelectorAll('h1').length !== 1) problems.push('one main and one h1');
  if (!document.documentElement.lang || !document.title) problems.push('a language and a title');
  let level = 1;
  for (const e of document.querySelectorAll('h1, h2, h3, h4')) {
    if (!shown(e)) continue;
    const now = Number(e.tagName[1]);
    if (now > level + 1) problems.push(`a heading skips a level: ${name(e)}`);
    level = now;
  }

  // 2.5.8: targets of 24 pixels; on phones 44, as the page promises.
  const least = window.innerWidth <= 760 ? 44 : 24;
  for (const e of document.querySelectorAll('button, select, textarea, a[href], input, label:has(input[type=radio])')) {
    if (!shown(e) || e.closest('.skip') || e.matches('[type=radio], [type=range], [type=checkbox]')) continue;
    const box = e.getBoundingClientRect();
    if (Math.min(box.width, box.height) < least - 0.5) problems.push(`a target of ${box.width.toFixed(0)} x ${box.height.toFixed(0)}: ${name(e)}`);
  }
  if (document.documentElement.scrollWidth > window.innerWidth) problems.push(`the page is ${document.documentElement.scrollWidth} wide`);
  return problems;
})()
