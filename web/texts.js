// texts.js: the texts that a picture file carries (the settings, under "lazuli"), read from PNG, JPEG and WebP files, and written into
// JPEG and WebP files, as the library does it: comments of JPEG, XMP of WebP.

const MOST_TEXT = 1 << 20; // bytes of a file that are looked at
const FULL = 65533; // bytes of a comment; a longer text goes on in the next

const text = (bytes) => new TextDecoder().decode(bytes);
const bytesOf = (value) => new TextEncoder().encode(value);
const startsWith = (bytes, letters, at = 0) => [...letters].every((c, i) => bytes[at + i] === c.charCodeAt(0));

// ---- reading ----

function pngTexts(bytes, view) {
  const found = [];
  for (let at = 8; at + 12 <= bytes.length;) {
    const length = view.getUint32(at), kind = text(bytes.subarray(at + 4, at + 8)), body = bytes.subarray(at + 8, at + 8 + length);
    if (length > bytes.length - at - 12) break;
    const name = body.indexOf(0), compressed = kind === 'iTXt' && body[name + 1];
    const from = kind === 'tEXt' ? name + 1 : body.indexOf(0, body.indexOf(0, name + 3) + 1) + 1;
    if (name > 0 && (kind === 'tEXt' || kind === 'iTXt') && !compressed) found.push([text(body.subarray(0, name)), text(body.subarray(from))]);
    at += 12 + length;
  }
  return found;
}

function jpegTexts(bytes, view) {
  const found = [];
  let goesOn = false;
  for (let at = 2; at + 4 <= bytes.length && bytes[at] === 0xff && bytes[at + 1] !== 0xda;) {
    const length = view.getUint16(at + 2), body = text(bytes.subarray(at + 4, at + 2 + length));
    if (bytes[at + 1] === 0xfe && goesOn) found.at(-1)[1] += body;
    else if (bytes[at + 1] === 0xfe && body.includes(': ')) found.push([body.slice(0, body.indexOf(': ')), body.slice(body.indexOf(': ') + 2)]);
    goesOn = bytes[at + 1] === 0xfe && length === FULL + 2;
    at += 2 + length;
  }
  return found;
}

function webpTexts(bytes, view) {
  for (let at = 12; at + 8 <= bytes.length;) {
    const length = view.getUint32(at + 4, true);
    if (startsWith(bytes, 'XMP ', at)) {
      const xml = new DOMParser().parseFromString(text(bytes.subarray(at + 8, at + 8 + length)), 'application/xml');
      return [...xml.getElementsByTagNameNS('urn:lazuli:text', '*')].map((node) => [node.localName.replace(/_([0-9a-f]{2})/g, (all, hex) => String.fromCharCode(parseInt(hex, 16))), node.textContent]);
    }
    at += 8 + length + (length % 2);
  }
  return [];
}

// [[name, text], ...] of a file.
export async function textsOf(file) {
  const webp = file.type === 'image/webp'; // the texts of WebP are at its end
  const bytes = new Uint8Array(await (webp ? file : file.slice(0, MOST_TEXT)).arrayBuffer()), view = new DataView(bytes.buffer);
  if (startsWith(bytes, '\x89PNG')) return pngTexts(bytes, view);
  if (bytes[0] === 0xff && bytes[1] === 0xd8) return jpegTexts(bytes, view);
  return startsWith(bytes, 'RIFF') && startsWith(bytes, 'WEBP', 8) ? webpTexts(bytes, view) : [];
}

// The settings that a file of Lazuli carries, or null.
export async function settingsInside(file) {
  try {
    const found = (await textsOf(file)).find(([name]) => name === 'lazuli');
    return found ? JSON.parse(found[1]) : null;
  } catch {
    return null;
  }
}

// ---- writing ----

function jpegWith(bytes, view, texts) {
  let at = 2; // after the segments that must come first
  while (bytes[at] === 0xff && bytes[at + 1] >= 0xe0 && bytes[at + 1] <= 0xef) at += 2 + view.getUint16(at + 2);
  const parts = [bytes.subarray(0, at)];
  for (const [name, value] of texts) {
    const all = bytesOf(`${name}: ${value}`);
    for (let i = 0; i < all.length; i += FULL) {
      const piece = all.subarray(i, i + FULL);
      parts.push(new Uint8Array([0xff, 0xfe, (piece.length + 2) >> 8, (piece.length + 2) & 255]), piece);
    }
  }
  return [...parts, bytes.subarray(at)];
}

const escaped = (value) => value.replace(/[&<>\r]/g, (c) => ({ '&': '&amp;', '<': '&lt;', '>': '&gt;', '\r': '&#13;' })[c]).replace(/[\x00-\x08\x0b\x0c\x0e-\x1f]/g, '\ufffd');
const elementName = (name) => name.replace(/[^a-zA-Z0-9]|^[0-9]/g, (c) => '_' + c.charCodeAt(0).toString(16).padStart(2, '0'));
const number = (value, size) => Array.from({ length: size }, (_, i) => (value >>> (8 * i)) & 255);

function chunk(name, body) {
  return new Uint8Array([...bytesOf(name), ...number(body.length, 4), ...body, ...(body.length % 2 ? [0] : [])]);
}

function webpWith(bytes, texts, width, height) {
  const xmp = '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description rdf:about="" xmlns:lz="urn:lazuli:text">\n' +
    texts.map(([name, value]) => `<lz:${elementName(name)}>${escaped(value)}</lz:${elementName(name)}>\n`).join('') + '</rdf:Description></rdf:RDF></x:xmpmeta>\n';
  let rest = bytes.subarray(12), features = new Uint8Array([4, 0, 0, 0, ...number(width - 1, 3), ...number(height - 1, 3)]);
  if (startsWith(rest, 'VP8X')) {
    features = rest.slice(8, 18);
    features[0] |= 4;
    rest = rest.subarray(18);
  } else if (startsWith(rest, 'VP8L') && rest[12] & 16) features[0] |= 16; // it has opacity
  const parts = [chunk('VP8X', features), rest, chunk('XMP ', bytesOf(xmp))];
  const size = parts.reduce((n, part) => n + part.length, 4);
  return [new Uint8Array([...bytesOf('RIFF'), ...number(size, 4), ...bytesOf('WEBP')]), ...parts];
}

// The JPEG or WebP file with these texts.
export async function withTexts(blob, texts, width, height) {
  const bytes = new Uint8Array(await blob.arrayBuffer()), view = new DataView(bytes.buffer);
  const parts = blob.type === 'image/jpeg' ? jpegWith(bytes, view, texts) : webpWith(bytes, texts, width, height);
  return new Blob(parts, { type: blob.type });
}
