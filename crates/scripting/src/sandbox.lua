-- The functions of the base libraries that have to be others here, and are called too often, or see too much of the
-- stack, to be written in Rust. No function reads or writes a global: scripts may look at what they can reach of it.
--
-- `native`: Lua's own functions. `rust`: helpers. `real`: tables behind their read-only fronts, by front.
-- `HIDDEN`: what the metatables of fronts show. `handler`: what sees an error that ends a run.
local native, rust, real, HIDDEN, global_metatable, handler, SOURCE_BYTES_MAX = ...

local type, error, select, tonumber = native.type, native.error, native.select, native.tonumber
local native_pcall, native_xpcall, native_resume = native.pcall, native.xpcall, native.resume
local native_create, native_next, native_rawget = native.create, native.next, native.rawget
local native_rawset, native_getmetatable = native.rawset, native.getmetatable
local native_setmetatable, native_unpack, native_insert = native.setmetatable, native.unpack, native.insert
local native_collectgarbage, native_concat = native.collectgarbage, native.concat
local bad_argument, type_of, raise, place = rust.bad_argument, rust.type_of, rust.text, rust.place
local caught, check, compile = rust.caught, rust.check, rust.compile
local READ_ONLY = "Attempt to modify a readonly table"

local function wrong_type(number, expected, ...)
  bad_argument(number, expected .. " expected, got " .. type_of(...))
end

-- pcall, xpcall, coroutines: what ends a run passes all of them.

local function finish_pcall(is_ok, ...)
  if is_ok then
    return true, ...
  end
  local value = caught(...)
  if type(value) == "table" then
    local text = native_rawget(value, "err")
    if type(text) == "string" or type(text) == "number" then
      value = text
    end
  end
  return false, value
end

local function pcall(f, ...)
  return finish_pcall(native_pcall(f, ...))
end

local function finish_xpcall(is_ok, ...)
  if not is_ok then
    check()
  end
  return is_ok, ...
end

local function xpcall(f, ...)
  if select("#", ...) == 0 then
    bad_argument(2, "value expected")
  end
  local handler = ...
  return finish_xpcall(native_xpcall(f, function(value)
    if type(value) == "userdata" then
      if rust.is_to_end() then
        return value
      end
      value = caught(value)
    end
    return handler(value)
  end))
end

local function finish_resume(is_ok, ...)
  check()
  if is_ok then
    return true, ...
  end
  return false, caught(...)
end

local function resume(...)
  local thread = ...
  if type(thread) ~= "thread" then
    bad_argument(1, "coroutine expected")
  end
  return finish_resume(native_resume(...))
end

local function finish_wrap(is_ok, ...)
  check()
  if is_ok then
    return ...
  end
  local value = caught(...)
  if type(value) == "string" or type(value) == "number" then
    value = place() .. value
  end
  error(value, 0)
end

local function wrap(f)
  local is_ok, thread = native_pcall(native_create, f)
  if not is_ok then
    bad_argument(1, "Lua function expected")
  end
  return function(...)
    return finish_wrap(native_resume(thread, ...))
  end
end

-- Tables behind fronts.

local function next(...)
  local t, key = ...
  if type(t) ~= "table" then
    wrong_type(1, "table", ...)
  end
  return native_next(real[t] or t, key)
end

local function pairs(...)
  local t = ...
  if type(t) ~= "table" then
    wrong_type(1, "table", ...)
  end
  if real[t] then
    return next, t, nil
  end
  return native_next, t, nil
end

local function rawget(...)
  local t, key = ...
  if type(t) ~= "table" then
    wrong_type(1, "table", ...)
  elseif select("#", ...) < 2 then
    bad_argument(2, "value expected")
  end
  return native_rawget(real[t] or t, key)
end

local function rawset(...)
  local t, key, value = ...
  local count = select("#", ...)
  if type(t) ~= "table" then
    wrong_type(1, "table", ...)
  elseif count < 3 then
    bad_argument(count + 1, "value expected")
  elseif real[t] then
    error(READ_ONLY, 0)
  end
  return native_rawset(t, key, value)
end

local function getmetatable(...)
  if select("#", ...) == 0 then
    bad_argument(1, "value expected")
  end
  local metatable = native_getmetatable(...)
  if metatable == HIDDEN then
    return global_metatable[...]
  end
  return metatable
end

local function setmetatable(...)
  local t, metatable = ...
  if type(t) ~= "table" then
    wrong_type(1, "table", ...)
  elseif (metatable ~= nil or select("#", ...) < 2) and type(metatable) ~= "table" then
    bad_argument(2, "nil or table expected")
  elseif real[t] then
    error(READ_ONLY, 0)
  end
  if not native_pcall(native_setmetatable, t, metatable) then
    raise("cannot change a protected metatable")
  end
  return t
end

local function insert(...)
  local t, position = ...
  local count = select("#", ...)
  if type(t) ~= "table" then
    wrong_type(1, "table", ...)
  elseif real[t] then
    error(READ_ONLY, 0)
  elseif count == 3 then
    if not tonumber(position) or type(position) == "boolean" then
      wrong_type(2, "number", select(2, ...))
    end
  elseif count ~= 2 then
    raise("wrong number of arguments to 'insert'")
  end
  return native_insert(...)
end

-- What can be asked for too much.

local INT_MAX = 2147483647
-- Slots of the stack that a call of a C function may take, its arguments included.
local SLOTS_MAX = 8000

local function unpack(...)
  local t, first, last = ...
  if first == nil and last == nil and type(t) == "table" and #t < SLOTS_MAX then
    return native_unpack(t)
  end
  if type(t) ~= "table" then
    wrong_type(1, "table", ...)
  end
  local i, j = 1, #t
  if first ~= nil then
    i = rust.to_int(first) or wrong_type(2, "number", first)
  end
  if last ~= nil then
    j = rust.to_int(last) or wrong_type(3, "number", last)
  end
  if i > j then
    return
  end
  local count = select("#", ...)
  if j - i + 1 + count > SLOTS_MAX or j > INT_MAX - 1 then
    raise("too many results to unpack")
  elseif count == 2 then
    return native_unpack(t, i)
  end
  return native_unpack(t, i, j)
end

-- What calls back. Errors of what is called are raised where they are raised in Lua.

local function replacement(repl, whole, ...)
  local value
  if type(repl) == "table" then
    value = repl[(...)]
  else
    value = repl(...)
  end
  if not value then
    return whole
  elseif type(value) ~= "string" and type(value) ~= "number" then
    raise("invalid replacement value (a " .. type(value) .. ")")
  end
  return value
end

local function gsub(...)
  local repl = select(3, ...)
  if type(repl) ~= "function" and type(repl) ~= "table" then
    return rust.gsub(...)
  end
  local next_match = rust.gsub_matches(...)
  local parts, count, matches = {}, 0, 0
  local function collect(before, whole, ...)
    parts[count + 1] = before
    if not whole then
      count = count + 1
      return false
    end
    matches = matches + 1
    parts[count + 2] = replacement(repl, whole, ...)
    count = count + 2
    return true
  end
  while collect(next_match()) do end
  return native_concat(parts), matches
end

-- Chunks: the pieces are put together before the parser sees the first, so that it never calls a script.

local function load(...)
  local f, name = ...
  if type(f) ~= "function" then
    wrong_type(1, "function", ...)
  elseif name ~= nil and type(name) ~= "string" and type(name) ~= "number" then
    wrong_type(2, "string", name)
  end
  local pieces, count, bytes = {}, 0, 0
  while true do
    local is_ok, piece = native_pcall(f)
    if not is_ok then
      return nil, caught(piece)
    elseif piece == nil or piece == "" then
      break
    elseif type(piece) ~= "string" and type(piece) ~= "number" then
      return nil, "reader function must return a string"
    end
    count = count + 1
    piece = piece .. ""
    pieces[count] = piece
    bytes = bytes + #piece
    if bytes > SOURCE_BYTES_MAX then
      return nil, "chunk too large"
    end
  end
  return compile(native_concat(pieces), name or "=(load)")
end

local function loadstring(...)
  local source, name = ...
  if type(source) ~= "string" and type(source) ~= "number" then
    wrong_type(1, "string", ...)
  elseif name ~= nil and type(name) ~= "string" and type(name) ~= "number" then
    wrong_type(2, "string", name)
  end
  return compile(source .. "", name or source .. "")
end

-- What would last beyond the run is not done.
local function collectgarbage(...)
  local option = ...
  if option == nil then
    option = "collect"
  elseif type(option) ~= "string" then
    if type(option) ~= "number" then
      wrong_type(1, "string", ...)
    end
    option = option .. ""
  end
  check()
  if option == "collect" or option == "count" or option == "step" then
    return native_collectgarbage(option)
  elseif option == "stop" or option == "restart" then
    return 0
  elseif option == "setpause" or option == "setstepmul" then
    return 200
  end
  bad_argument(1, "invalid option '" .. option .. "'")
end

local function error_handler(value)
  if type(value) ~= "table" then
    value = { err = "ERR " .. native.tostring(value) }
  end
  return value
end

-- A function with its arguments, for xpcall, which takes none.
local function call_function(f, keys, args)
  return native_xpcall(function()
    return f(keys, args)
  end, handler)
end

return {
  pcall = pcall, xpcall = xpcall, resume = resume, wrap = wrap, next = next, pairs = pairs, rawget = rawget,
  rawset = rawset, getmetatable = getmetatable, setmetatable = setmetatable, insert = insert, unpack = unpack,
  load = load, loadstring = loadstring, collectgarbage = collectgarbage, error_handler = error_handler,
  call_function = call_function, gsub = gsub,
}
