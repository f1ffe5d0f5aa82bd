/* scripts.c: see scripts.h. */
#include "scripts.h"

/* Functions that several scripts use. */
#define COMMON                                                                                                         \
    "local P = KEYS[1]\n"                                                                                              \
    "local call = redis.call\n"                                                                                        \
    "local function now() local t = call('TIME') return string.format('%d.%06d', t[1], t[2]) end\n"                    \
    "local function tell(id, owner)\n"                                                                                 \
    "  call('PUBLISH', P..'news', cjson.encode({type='state', job=id, owner=owner or ''}))\n"                          \
    "end\n"                                                                                                            \
    "local function count(owner, n)\n"                                                                                 \
    "  call('HINCRBY', P..'waiting', '*', n)\n"                                                                        \
    "  if owner and call('HINCRBY', P..'waiting', owner, n) <= 0 then call('HDEL', P..'waiting', owner) end\n"         \
    "end\n" /* The ticket is done. Entries before the oldest one that is still worked on are removed. */               \
    "local function done(model, entry)\n"                                                                              \
    "  local stream = P..'jobs:'..model\n"                                                                             \
    "  call('XACK', stream, 'workers', entry)\n"                                                                       \
    "  call('HDEL', P..'bound', model..' '..entry)\n"                                                                  \
    "  local pending = call('XPENDING', stream, 'workers')\n"                                                          \
    "  local first = pending[2]\n"                                                                                     \
    "  if pending[1] == 0 then\n"                                                                                      \
    "    for _, group in ipairs(call('XINFO', 'GROUPS', stream)) do\n"                                                 \
    "      for i = 1, #group, 2 do if group[i] == 'last-delivered-id' then first = group[i + 1] end end\n"             \
    "    end\n"                                                                                                        \
    "  end\n"                                                                                                          \
    "  if first then call('XTRIM', stream, 'MINID', first) end\n"                                                      \
    "end\n"                                                                                                            \
    "local function owns(model, entry, worker)\n"                                                                      \
    "  local mine = call('XPENDING', P..'jobs:'..model, 'workers', entry, entry, 1)\n"                                 \
    "  return #mine == 1 and mine[1][2] == worker\n"                                                                   \
    "end\n"                                                                                                            \
    "local function finish(id, state, code, message)\n"                                                                \
    "  local job = P..'job:'..id\n"                                                                                    \
    "  local f = call('HMGET', job, 'owner', 'model', 'rank', 'entry', 'ttl')\n"                                       \
    "  if f[3] and call('ZREM', P..'wait:'..f[2], f[3]) == 1 then count(f[1], -1) end\n"                               \
    "  call('HSET', job, 'state', state, 'code', code, 'message', message, 'completed', now())\n"                      \
    "  if f[4] then call('HDEL', job, 'entry') done(f[2], f[4]) end\n"                                                 \
    "  if tonumber(f[5] or 0) > 0 then call('EXPIRE', job, f[5]) end\n"                                                \
    "  tell(id, f[1])\n"                                                                                               \
    "end\n"                                                                                                            \
    "local function lost(id, most)\n"                                                                                  \
    "  local attempts = call('HINCRBY', P..'job:'..id, 'attempts', 1)\n"                                               \
    "  if attempts <= tonumber(most) then return false end\n"                                                          \
    "  call('XADD', P..'dead', 'MAXLEN', '~', 10000, '*', 'job', id)\n"                                                \
    "  finish(id, 3, 'worker_lost', 'the worker ended three times while it made this picture')\n"                      \
    "  return true\n"                                                                                                  \
    "end\n"

const char script_put[] = COMMON
    "local id, model, owner, n, priority, rep, body, ttl = unpack(ARGV, 1, 8)\n"
    "local job = P..'job:'..id\n"
    "if call('EXISTS', job) == 1 then return 'added' end\n"
    "if rep ~= '' then\n"
    "  local key = P..'repeat:'..rep\n"
    "  if not call('SET', key, id..' '..body, 'NX', 'EX', 86400) then\n"
    "    local other = string.match(call('GET', key), '^%S+') or ''\n"
    "    local old = call('HMGET', P..'job:'..other, 'state', 'code')\n"
    "    local codes = {device_failed = 1, queue_timeout = 1, draining = 1, not_ready = 1, paused = 1}\n"
    /* A cancelled job does not count, nor one that ended with a code after which the client may try again. */
    "    local again = old[1] == '4' or (old[1] == '3' and codes[old[2] or ''])\n"
    "    if old[1] and not again then return 'before' end\n"
    "    call('SET', key, id..' '..body, 'EX', 86400)\n"
    "  end\n"
    "end\n"
    "local seq = call('INCR', P..'seq')\n"
    "local rank = string.format('%016d:%s', seq, id)\n"
    "local drawn = tonumber(call('HGET', P..'tags:'..model, '*') or 0)\n"
    "local before = tonumber(call('HGET', P..'tags:'..model, owner) or 0)\n"
    "local score = math.max(drawn, before) + tonumber(n)\n"
    "call('HSET', P..'tags:'..model, owner, score)\n"
    "call('HSET', job, 'model', model, 'owner', owner, 'n', n, 'priority', priority, 'body', body, 'ttl', ttl,\n"
    "     'state', 0, 'attempts', 0, 'made', 0, 'rank', rank, 'seq', seq, 'created', now(), unpack(ARGV, 9))\n"
    "call('ZADD', P..'wait:'..model, score - 1e9 * tonumber(priority), rank)\n"
    "count(owner, 1)\n"
    "call('ZADD', P..'list', seq, id)\n"
    "call('ZADD', P..'list:'..owner, seq, id)\n"
    "call('ZREMRANGEBYRANK', P..'list', 0, -100001)\n"
    "call('ZREMRANGEBYRANK', P..'list:'..owner, 0, -10001)\n"
    "if tonumber(ttl) > 0 then call('EXPIRE', P..'list:'..owner, ttl) end\n"
    "call('XADD', P..'jobs:'..model, '*', 'ticket', 1)\n"
    "tell(id, owner)\n"
    "return 'added'\n";

/* The job is taken out of those that wait, and bound to the ticket. */
#define BIND                                                                                                           \
    "local function bind(model, entry, rank, score)\n"                                                                 \
    "  local id = string.sub(rank, 18)\n"                                                                              \
    "  call('ZREM', P..'wait:'..model, rank)\n"                                                                        \
    "  local owner = call('HGET', P..'job:'..id, 'owner')\n"                                                           \
    "  count(owner, -1)\n"                                                                                             \
    "  if owner then call('HSET', P..'job:'..id, 'score', score) end\n"                                                \
    "  call('HSET', P..'bound', model..' '..entry, id)\n"                                                              \
    "  return id\n"                                                                                                    \
    "end\n" /* The worker begins the job. Returns its fields; false: it needs no work. */                              \
    "local function begin(id, model, entry, worker, most)\n"                                                           \
    "  local job = P..'job:'..id\n"                                                                                    \
    "  local f = call('HMGET', job, 'state', 'attended', 'front', 'owner', 'started')\n"                               \
    "  if not f[1] or tonumber(f[1]) > 1 then done(model, entry) return false end\n"                                   \
    "  call('HSET', job, 'entry', entry, 'worker', worker, 'model', model)\n"                                          \
    "  if f[2] == '1' and call('EXISTS', P..'front:'..(f[3] or '')) == 0 then\n"                                       \
    "    finish(id, 4, 'cancelled', 'the server of the client has ended')\n"                                           \
    "    return false\n"                                                                                               \
    "  end\n"                                                                                                          \
    "  if lost(id, most) then return false end\n" /* counts this attempt */                                            \
    "  call('HSET', job, 'state', 1, 'started', tonumber(f[5] or 0) > 0 and f[5] or now())\n"                          \
    "  tell(id, f[4])\n"                                                                                               \
    "  local all = call('HGETALL', job)\n"                                                                             \
    "  all[#all + 1] = 'id'\n"                                                                                         \
    "  all[#all + 1] = id\n"                                                                                           \
    "  return all\n"                                                                                                   \
    "end\n"

const char script_draw[] = COMMON BIND
    "local model, entry, worker, most = unpack(ARGV)\n"
    "local id = call('HGET', P..'bound', model..' '..entry)\n"
    "if not id and call('EXISTS', P..'paused') == 1 then\n" /* another ticket waits until the queue goes on */
    "  done(model, entry)\n"
    "  call('XADD', P..'jobs:'..model, '*', 'ticket', 1)\n"
    "  return false\n"
    "end\n"
    "if not id then\n"
    "  local top = call('ZRANGE', P..'wait:'..model, 0, 0, 'WITHSCORES')\n"
    "  if #top == 0 then done(model, entry) return false end\n"
    "  id = bind(model, entry, top[1], top[2])\n"
    "  local f = call('HMGET', P..'job:'..id, 'owner', 'priority')\n"
    "  local tags, score = P..'tags:'..model, tonumber(top[2])\n"
    "  if f[2] == '0' then call('HSET', tags, '*', top[2]) end\n"
    "  local last = f[1] and call('HGET', tags, f[1])\n"
    "  if last and tonumber(last) <= score then call('HDEL', tags, f[1]) end\n"
    "end\n"
    "return begin(id, model, entry, worker, most)\n";

/* The score that was drawn last stays as it is, and so does that of the owner, whose next job is put after this one.
 * script_tidy removes it. */
const char script_join[] = COMMON BIND
    "local model, worker, most, kind, apart = unpack(ARGV)\n"
    "if call('EXISTS', P..'paused') == 1 then return false end\n"
    "local top = call('ZRANGE', P..'wait:'..model, 0, 31, 'WITHSCORES')\n"
    "for i = 1, #top, 2 do\n"
    "  local id = string.sub(top[i], 18)\n"
    "  local f = call('HMGET', P..'job:'..id, 'kind', 'attempts', 'state')\n"
    "  if f[1] == kind and f[2] == '0' and f[3] == '0' and not string.find(apart, id, 1, true) then\n"
    "    local got = call('XREADGROUP', 'GROUP', 'workers', worker, 'COUNT', 1, 'STREAMS', P..'jobs:'..model, '>')\n"
    "    if not got then return false end\n" /* other workers have the tickets already */
    "    local entry = got[1][2][1][1]\n"
    "    local old = call('HGET', P..'bound', model..' '..entry)\n" /* a job that was given back comes first */
    "    return begin(old or bind(model, entry, top[i], top[i + 1]), model, entry, worker, most)\n"
    "  end\n"
    "end\n"
    "return false\n";

const char script_renew[] = COMMON
    "local model, entry, worker, id = unpack(ARGV)\n"
    "if not owns(model, entry, worker) then return 0 end\n"
    "call('XCLAIM', P..'jobs:'..model, 'workers', worker, 0, entry, 'IDLE', 0, 'JUSTID')\n"
    "return call('HGET', P..'job:'..id, 'state') == '1' and 1 or 0\n";

const char script_finish[] = COMMON
    "local id, index, picture, data = unpack(ARGV)\n"
    "local job = P..'job:'..id\n"
    "local f = call('HMGET', job, 'state', 'owner', 'n', 'made')\n"
    "if f[1] == '2' then return tonumber(f[4]) end\n"
    "if f[1] ~= '1' then return -1 end\n"
    "local made = tonumber(f[4])\n"
    "if call('HSETNX', job, 'picture'..index, data) == 1 then\n"
    "  made = call('HINCRBY', job, 'made', 1)\n"
    "  local seq = call('INCR', P..'seq')\n"
    "  call('HSET', P..'picture:'..picture, 'data', data, 'job', id, 'owner', f[2], 'pinned', 0, 'removed', 0)\n"
    "  call('ZADD', P..'pictures', seq, picture)\n"
    "  call('ZADD', P..'pictures:'..f[2], seq, picture)\n"
    "end\n"
    "if made >= tonumber(f[3]) then finish(id, 2, '', '') else tell(id, f[2]) end\n"
    "return made\n";

const char script_end[] = COMMON "local id, state, code, message, model, entry, worker = unpack(ARGV)\n"
                                 "local was = call('HGET', P..'job:'..id, 'state')\n"
                                 "if not was or tonumber(was) > 1 then return was end\n"
                                 "if worker and not owns(model, entry, worker) then return was end\n"
                                 "finish(id, state, code, message)\n"
                                 "call('PUBLISH', P..'control', cjson.encode({type='cancel', job=id}))\n"
                                 "return state\n";

const char script_give_back[] = COMMON "local model, entry, worker, id = unpack(ARGV)\n"
                                       "local stream = P..'jobs:'..model\n"
                                       "if not owns(model, entry, worker) then return 0 end\n"
                                       "call('XACK', stream, 'workers', entry)\n"
                                       "call('HDEL', P..'bound', model..' '..entry)\n"
                                       "if id ~= '' then\n"
                                       "  local job = P..'job:'..id\n"
                                       "  if call('HGET', job, 'state') ~= '1' then return 0 end\n"
                                       "  call('HSET', job, 'state', 0)\n"
                                       "  call('HINCRBY', job, 'attempts', -1)\n"
                                       "  call('HDEL', job, 'entry', 'worker')\n"
                                       "end\n"
                                       "local again = call('XADD', stream, '*', 'ticket', 1)\n"
                                       "if id ~= '' then call('HSET', P..'bound', model..' '..again, id) tell(id, "
                                       "call('HGET', P..'job:'..id, 'owner')) end\n"
                                       "return 1\n";

const char script_put_back[] = COMMON "local model, entry, worker, id = unpack(ARGV)\n"
                                      "local job = P..'job:'..id\n"
                                      "if not owns(model, entry, worker) then return 0 end\n"
                                      "local f = call('HMGET', job, 'state', 'owner', 'rank', 'score')\n"
                                      "if f[1] ~= '1' or not f[3] or not f[4] then return 0 end\n"
                                      "done(model, entry)\n"
                                      "call('HSET', job, 'state', 0)\n"
                                      "call('HINCRBY', job, 'attempts', -1)\n"
                                      "call('HDEL', job, 'entry', 'worker', 'started')\n"
                                      "call('ZADD', P..'wait:'..model, f[4], f[3])\n"
                                      "count(f[2], 1)\n"
                                      "call('XADD', P..'jobs:'..model, '*', 'ticket', 1)\n"
                                      "tell(id, f[2])\n"
                                      "return 1\n";

const char script_lost[] = COMMON "local id, most, model, entry, worker = unpack(ARGV)\n"
                                  "if call('HGET', P..'job:'..id, 'state') ~= '1' then return 0 end\n"
                                  "if not owns(model, entry, worker) then return 0 end\n"
                                  "return lost(id, most) and 0 or 1\n";

const char script_page[] = COMMON
    "local set, from, count, oldest, settings = unpack(ARGV)\n"
    "local last = from + count - 1\n"
    "local ids = call(oldest == '1' and 'ZRANGE' or 'ZREVRANGE', P..set, from, last)\n"
    "local all = {#ids}\n"
    "for _, id in ipairs(ids) do\n"
    "  local f = call('HMGET', P..'picture:'..id, 'data', 'pinned', 'removed', 'job', 'rating')\n"
    "  if not f[1] then call('ZREM', P..set, id)\n"
    "  else\n"
    "    local asked = settings == '1' and f[4] and call('HGET', P..'job:'..f[4], 'settings')\n"
    "    all[#all + 1] = {id, f[1], f[2] or '', f[3] or '', asked or '', f[5] or ''}\n"
    "  end\n"
    "end\n"
    "return all\n";

const char script_beat[] = COMMON
    "local worker, silence = unpack(ARGV)\n"
    "local time = now()\n"
    "if worker ~= '' then call('ZADD', P..'workers', time, worker) end\n"
    "call('ZREMRANGEBYSCORE', P..'workers', '-inf', string.format('(%.6f', tonumber(time) - tonumber(silence)))\n"
    "return call('ZCARD', P..'workers')\n";

const char script_first[] = COMMON "local id = ARGV[1]\n"
                                   "local f = call('HMGET', P..'job:'..id, 'owner', 'model', 'rank')\n"
                                   "if not f[2] then return 0 end\n"
                                   "local wait, mine = P..'wait:'..f[2], {}\n"
                                   "if not call('ZSCORE', wait, f[3] or '') then return 0 end\n"
                                   "local all = call('ZRANGE', wait, 0, call('ZRANK', wait, f[3]), 'WITHSCORES')\n"
                                   "for i = 1, #all, 2 do\n"
                                   "  local owner = call('HGET', P..'job:'..string.sub(all[i], 18), 'owner')\n"
                                   "  if owner == f[1] then mine[#mine + 1] = {all[i], all[i + 1]} end\n"
                                   "end\n" /* The owner's scores stay as they are, so other owners notice nothing. */
                                   "for i = 2, #mine do call('ZADD', wait, mine[i][2], mine[i - 1][1]) end\n"
                                   "if #mine > 0 then call('ZADD', wait, mine[1][2], f[3]) end\n"
                                   "tell(id, f[1])\n"
                                   "return 1\n";

const char script_tidy[] = COMMON
    "local stream = P..'jobs:'..ARGV[1]\n"
    "for _, consumer in ipairs(call('XINFO', 'CONSUMERS', stream, 'workers')) do\n"
    "  local c = {}\n"
    "  for i = 1, #consumer, 2 do c[consumer[i]] = consumer[i + 1] end\n"
    "  if c.pending == 0 and c.idle > 60000 then call('XGROUP', 'DELCONSUMER', stream, 'workers', c.name) end\n"
    "end\n"
    /* Scores of owners that are not above the one that was drawn last say nothing. */
    "local tags = P..'tags:'..ARGV[1]\n"
    "local scores, drawn = call('HGETALL', tags), tonumber(call('HGET', tags, '*') or 0) or 0\n"
    "for i = 1, #scores, 2 do\n"
    "  if scores[i] ~= '*' and (tonumber(scores[i + 1]) or 0) <= drawn then call('HDEL', tags, scores[i]) end\n"
    "end\n"
    /* Redis does not know the lag after a restart: it has lost the number of entries that were read. */
    "for _, group in ipairs(call('XINFO', 'GROUPS', stream)) do\n"
    "  local g = {}\n"
    "  for i = 1, #group, 2 do g[group[i]] = group[i + 1] end\n"
    "  if g.name == 'workers' and not g.lag then\n"
    "    local about, last = call('XINFO', 'STREAM', stream), g['last-delivered-id']\n"
    "    local all = 0\n"
    "    for i = 1, #about, 2 do if about[i] == 'entries-added' then all = about[i + 1] end end\n"
    "    local unread = #call('XRANGE', stream, '('..last, '+')\n"
    "    call('XGROUP', 'SETID', stream, 'workers', last, 'ENTRIESREAD', all - unread)\n"
    "  end\n"
    "end\n"
    "return 1\n";
