"""The scripts of a Redis sink, each of which the server performs completely or not at all.

A script that has begun to write is not interrupted, and a server that is killed while it writes its append-only file
discards a partial script. A server that is out of memory refuses the first command that needs memory. Each script
therefore checks everything before it writes anything, and begins to write with a command that needs memory or with one
that frees memory.

Keys of all scripts except OPEN: the stream, the account, the held determinants, the refused rows. Those of a sink with
`upsert=True` have the hash in place of the stream, and the undo entries of the task as a fifth key.
"""

from __future__ import annotations

_OWNER = """
local at = redis.call('HMGET', KEYS[2], 'run', 'incarnation', 'next', 'last')
if at[1] ~= ARGV[1] or at[2] ~= ARGV[2] then return 'fenced' end
"""
_EXPECTED = """
if at[3] ~= ARGV[3] or at[4] ~= ARGV[4] then return 'moved' end
"""
_ACCOUNT = """
local fields = cmsgpack.unpack(ARGV[5])
"""
_FIELDS_SET = """
for name, value in pairs(fields) do redis.call('HSET', KEYS[2], name, value) end
for _, part in ipairs(cmsgpack.unpack(ARGV[6])) do redis.call('RPUSH', KEYS[3], part) end
"""

_REFUSED_REMOVED = """
for _, position in ipairs(redis.call('HKEYS', KEYS[4])) do
  if tonumber(position) >= next then redis.call('HDEL', KEYS[4], position) end
end
"""

WRITE = (
    _OWNER
    + _EXPECTED
    + _ACCOUNT
    + """
local first, out = tonumber(ARGV[3]), cmsgpack.unpack(ARGV[8])
if redis.call('EXISTS', KEYS[1]) == 1 then
  local info = redis.call('XINFO', 'STREAM', KEYS[1])
  for place = 1, #info, 2 do
    if info[place] == 'last-generated-id' and tonumber(string.match(info[place + 1], '^%d+')) >= first
      and info[place + 1] ~= '0-0' then return 'foreign' end
  end
end
redis.call('LLEN', KEYS[3])
redis.call('HLEN', KEYS[4])
local skipped = {}
for _, row in ipairs(out) do skipped[row[1]] = row[2] end
local position = first
for line in string.gmatch(ARGV[7], '[^\\n]+') do
  if skipped[position] == nil then
    redis.call('XADD', KEYS[1], string.format('%.0f-1', position), 'record', line)
  else
    redis.call('HSET', KEYS[4], string.format('%.0f', position), skipped[position])
  end
  position = position + 1
end
"""
    + _FIELDS_SET
    + """
if ARGV[9] ~= '0' then redis.call('XTRIM', KEYS[1], 'MAXLEN', '~', ARGV[9]) end
return 'done'
"""
)
"""Arguments: run, incarnation, first, last before, account, parts, lines, refused rows, length of the stream or 0."""

TRUNCATE = (
    _OWNER
    + _EXPECTED
    + _ACCOUNT
    + """
redis.call('DEL', KEYS[3])
"""
    + _FIELDS_SET
    + "return 'done'"
)
"""Arguments: run, incarnation, next, last, account, parts."""

WITHDRAW = (
    _OWNER
    + _EXPECTED
    + _ACCOUNT
    + """
redis.call('DEL', KEYS[3])
local next, top = tonumber(ARGV[7]), '0-0'
if redis.call('EXISTS', KEYS[1]) == 1 then
  if next > 0 then top = string.format('%.0f-1', next - 1) end
  local gone = redis.call('XRANGE', KEYS[1], string.format('%.0f-1', next), '+', 'COUNT', 1000)
  while #gone > 0 do
    for _, entry in ipairs(gone) do redis.call('XDEL', KEYS[1], entry[1]) end
    gone = redis.call('XRANGE', KEYS[1], string.format('%.0f-1', next), '+', 'COUNT', 1000)
  end
  redis.call('XSETID', KEYS[1], top)
  for _, group in ipairs(redis.call('XINFO', 'GROUPS', KEYS[1])) do
    local name, seen
    for place = 1, #group, 2 do
      if group[place] == 'name' then name = group[place + 1] end
      if group[place] == 'last-delivered-id' then seen = group[place + 1] end
    end
    if tonumber(string.match(seen, '^%d+')) >= next then redis.call('XGROUP', 'SETID', KEYS[1], name, top) end
  end
end
"""
    + _REFUSED_REMOVED
    + _FIELDS_SET
    + "return 'done'"
)
"""Arguments: run, incarnation, next, last, account, parts, the position from which on rows are taken back."""

UPSERT = (
    _OWNER
    + _EXPECTED
    + _ACCOUNT
    + """
local first, epoch, out = ARGV[3], tonumber(ARGV[9]), cmsgpack.unpack(ARGV[8])
redis.call('HLEN', KEYS[1])
redis.call('LLEN', KEYS[3])
redis.call('HLEN', KEYS[4])
redis.call('ZCARD', KEYS[5])
local skipped, last, keys = {}, {}, {}
for _, row in ipairs(out) do skipped[row[1]] = row[2] end
local position = tonumber(first)
for line in string.gmatch(ARGV[7], '[^\\n]+') do
  if skipped[position] == nil then
    local key, record = string.match(line, '^([^\\t]*)\\t(.*)$')
    if last[key] == nil then keys[#keys + 1] = key end
    last[key] = record
  end
  position = position + 1
end
for _, key in ipairs(keys) do
  local entry = cmsgpack.pack({epoch, tonumber(first), key, redis.call('HGET', KEYS[1], key)})
  redis.call('ZADD', KEYS[5], first, entry)
end
for _, key in ipairs(keys) do
  if last[key] == '' then redis.call('HDEL', KEYS[1], key) else redis.call('HSET', KEYS[1], key, last[key]) end
end
for place, reason in pairs(skipped) do redis.call('HSET', KEYS[4], string.format('%.0f', place), reason) end
"""
    + _FIELDS_SET
    + "return 'done'"
)
"""Arguments: run, incarnation, first, last before, account, parts, lines, refused rows, epoch."""

TRUNCATE_UNDO = (
    _OWNER
    + _EXPECTED
    + _ACCOUNT
    + """
redis.call('DEL', KEYS[3])
redis.call('ZREMRANGEBYSCORE', KEYS[5], '-inf', '(' .. ARGV[7])
"""
    + _FIELDS_SET
    + "return 'done'"
)
"""Arguments: run, incarnation, next, last, account, parts, the position below which entries are removed."""

UNDO = (
    _OWNER
    + _EXPECTED
    + _ACCOUNT
    + """
redis.call('DEL', KEYS[3])
local next = tonumber(ARGV[7])
redis.call('ZREMRANGEBYSCORE', KEYS[5], ARGV[7], '+inf')
for _, row in ipairs(cmsgpack.unpack(ARGV[8])) do
  if row[2] then redis.call('HSET', KEYS[1], row[1], row[2]) else redis.call('HDEL', KEYS[1], row[1]) end
end
for _, entry in ipairs(cmsgpack.unpack(ARGV[9])) do
  if redis.call('ZREM', entry[1], entry[3]) == 1 then redis.call('ZADD', entry[1], entry[2], entry[4]) end
end
"""
    + _REFUSED_REMOVED
    + _FIELDS_SET
    + "return 'done'"
)
"""Arguments: run, incarnation, next, last, account, parts, the position from which on rows are taken back, the rows to
restore (key, record or false), entries of other tasks to change (key of the set, position, entry, new entry)."""

OPEN = """
local task, run, incarnation, existing, stream = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local form = ARGV[6]
local foreign = {}
local runs = redis.call('HGETALL', KEYS[1])
for place = 1, #runs, 2 do
  if runs[place + 1] > run then return {'newer', runs[place + 1]} end
  local account = stream .. ':' .. runs[place] .. ':causal'
  if (redis.call('HGET', account, 'form') or '') ~= form then return {'form'} end
  local other, own = string.match(runs[place], '^(.*)/'), string.match(task, '^(.*)/')
  if runs[place + 1] == run and form ~= '' and other ~= own then return {'table', other} end
  if runs[place + 1] ~= run then
    local next = redis.call('HGET', account, 'next')
    if next and tonumber(next) > 0 and existing == 'refuse' then return {'run'} end
    foreign[#foreign + 1] = runs[place]
  end
end
local key = stream .. ':' .. task
local account = key .. ':causal'
local own = redis.call('HGET', KEYS[1], task) == run
local taken = not own and redis.call('HEXISTS', KEYS[1], task) == 0 and redis.call('EXISTS', key) == 1
if form ~= '' then taken = #runs == 0 and redis.call('EXISTS', stream) == 1 end
if taken then return {'taken'} end
if own then
  local before = redis.call('HGET', account, 'incarnation')
  if before and tonumber(before) > tonumber(incarnation) then return {'fenced'} end
end
for _, other in ipairs(foreign) do
  local gone = stream .. ':' .. other
  redis.call('DEL', gone, gone .. ':causal', gone .. ':held', gone .. ':refused', gone .. ':undo')
  redis.call('HDEL', KEYS[1], other)
end
if form ~= '' and #foreign > 0 then redis.call('DEL', stream) end
redis.call('HSET', KEYS[1], task, run)
redis.call('HSET', account, 'run', run, 'incarnation', incarnation)
if form ~= '' then redis.call('HSET', account, 'form', form) end
redis.call('HSETNX', account, 'next', '0')
redis.call('HSETNX', account, 'last', '')
return {'open', redis.call('HGETALL', account), redis.call('LRANGE', key .. ':held', 0, -1)}
"""
"""Arguments: task, run, incarnation, existing, stream, form of the output ("key": a hash by key; or empty); its one key
has the tasks with their runs."""

LOAD = """
return {redis.call('HGETALL', KEYS[2]), redis.call('LRANGE', KEYS[3], 0, -1)}
"""
