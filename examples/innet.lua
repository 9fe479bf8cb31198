-- A Wireshark dissector for innet's packets, version 3 of the format (docs/wire-format.md).
--
--   tshark -X lua_script:examples/innet.lua -r round.pcap -V
--   wireshark -X lua_script:examples/innet.lua round.pcap
--
-- To load it always, copy it into the folder of personal Lua plugins (Help, About Wireshark,
-- Folders). Display filters use the names of the fields: innet.job == 1 && innet.flags.result

local VERSION = 3
local HEADER_BYTES = 32

local innet = Proto("innet", "innet in-network aggregation")

local OPERATIONS = {
  [1] = "SUM", [2] = "OR", [3] = "MAX", [4] = "REDUCE", [5] = "BROADCAST", [6] = "BARRIER",
}
-- Of chunks with an owner, whose index is where the exponent is. Some of their packets end with the
-- header.
local FIRST_WITH_OWNER = 4
local WITHOUT_VALUES = 0x80
for number = FIRST_WITH_OWNER, #OPERATIONS do
  OPERATIONS[WITHOUT_VALUES + number] = OPERATIONS[number] .. " without values"
end

-- Fields in the order of the header: offset, bytes, field.
local fields = {
  { 0, 2, ProtoField.uint16("innet.magic", "magic", base.HEX) },
  { 2, 1, ProtoField.uint8("innet.version", "version") },
  { 3, 1, ProtoField.uint8("innet.operation", "operation", base.DEC, OPERATIONS) },
  { 4, 2, ProtoField.uint16("innet.job", "job") },
  { 6, 2, ProtoField.uint16("innet.epoch", "epoch") },
  { 8, 4, ProtoField.uint32("innet.sequence", "sequence") },
  { 12, 2, ProtoField.uint16("innet.slot", "slot") },
  { 14, 1, ProtoField.uint8("innet.slot_version", "slot version") },
  { 15, 1, ProtoField.uint8("innet.flags", "flags", base.HEX) },
  { 16, 4, ProtoField.uint32("innet.bitmap", "bitmap", base.HEX) },
  { 20, 2, ProtoField.uint16("innet.worker", "worker") },
  { 22, 2, ProtoField.uint16("innet.count", "count") },
  { 24, 2, ProtoField.uint16("innet.elements", "elements") },
  { 26, 2, ProtoField.uint16("innet.exponent", "exponent") },
  { 28, 2, ProtoField.uint16("innet.message", "message", base.HEX) },
  { 30, 2, ProtoField.uint16("innet.checksum", "checksum", base.HEX) },
}
local FLAGS = 9 -- the row of the flags

local flags = {
  ProtoField.bool("innet.flags.overflow", "overflow", 8, nil, 0x01),
  ProtoField.bool("innet.flags.collision", "collision", 8, nil, 0x02),
  ProtoField.bool("innet.flags.resend", "resend", 8, nil, 0x04),
  ProtoField.bool("innet.flags.ecn", "ecn", 8, nil, 0x08),
  ProtoField.bool("innet.flags.result", "result", 8, nil, 0x10),
  ProtoField.bool("innet.flags.partial", "partial", 8, nil, 0x20),
  ProtoField.uint8("innet.flags.urgency", "urgency", base.DEC, nil, 0xC0),
}
local value = ProtoField.int32("innet.value", "value")
local owner = ProtoField.uint16("innet.owner", "owner")

local registered = { value, owner }
for _, each in ipairs(fields) do
  table.insert(registered, each[3])
end
for _, each in ipairs(flags) do
  table.insert(registered, each)
end
innet.fields = registered

local wrong_version =
  ProtoExpert.new("innet.wrong_version", "another version", expert.group.PROTOCOL, expert.severity.WARN)
local wrong_checksum =
  ProtoExpert.new("innet.wrong_checksum", "wrong checksum", expert.group.CHECKSUM, expert.severity.ERROR)
innet.experts = { wrong_version, wrong_checksum }

-- RFC 1071: header and values add up to 0xFFFF.
local function checksum_holds(buffer, size)
  local total = 0
  for offset = 0, size - 2, 2 do
    total = total + buffer(offset, 2):uint()
  end
  while total > 0xFFFF do
    total = total % 0x10000 + math.floor(total / 0x10000)
  end
  return total == 0xFFFF
end

function innet.dissector(buffer, pinfo, tree)
  local length = buffer:len()
  if length < 4 or buffer(0, 2):uint() ~= 0x494E then
    return 0 -- left to other dissectors
  end
  pinfo.cols.protocol = "innet"
  local version = buffer(2, 1):uint()
  if version ~= VERSION or length < HEADER_BYTES then
    local item = tree:add(innet, buffer())
    item:add(fields[1][3], buffer(0, 2))
    local found = item:add(fields[2][3], buffer(2, 1))
    if version ~= VERSION then
      found:add_proto_expert_info(wrong_version)
    end
    pinfo.cols.info = "innet version " .. version .. ", " .. length .. " bytes"
    return length
  end

  local operation = buffer(3, 1):uint()
  local words = operation < WITHOUT_VALUES and math.floor((length - HEADER_BYTES) / 4) or 0
  local size = HEADER_BYTES + 4 * words
  local item = tree:add(innet, buffer(0, size))
  for row, each in ipairs(fields) do
    local offset, bytes, field = each[1], each[2], each[3]
    local found = item:add(field, buffer(offset, bytes))
    if row == FLAGS then
      for _, flag in ipairs(flags) do
        found:add(flag, buffer(offset, bytes))
      end
    elseif row == #fields and length == buffer:reported_len() and not checksum_holds(buffer, size) then
      found:add_proto_expert_info(wrong_checksum)
    end
  end
  local has_owner = OPERATIONS[operation] ~= nil and operation % WITHOUT_VALUES >= FIRST_WITH_OWNER
  if has_owner then
    item:add(owner, buffer(26, 2)):set_generated()
  end
  if words > 0 then
    local values = item:add(buffer(HEADER_BYTES, 4 * words), "values (" .. words .. ")")
    for index = 0, words - 1 do
      local range = buffer(HEADER_BYTES + 4 * index, 4)
      values:add(value, range):set_text(index .. ": " .. range:int())
    end
  end

  local is_result = math.floor(buffer(15, 1):uint() / 16) % 2 == 1
  pinfo.cols.info = string.format(
    "innet %s %s job %d/%d chunk %d slot %d.%d worker %d%s",
    is_result and "result" or "update",
    OPERATIONS[operation] or "?",
    buffer(4, 2):uint(), buffer(6, 2):uint(), buffer(8, 4):uint(),
    buffer(12, 2):uint(), buffer(14, 1):uint(), buffer(20, 2):uint(),
    has_owner and " owner " .. buffer(26, 2):uint() or ""
  )
  return size
end

DissectorTable.get("udp.port"):add(48879, innet)
DissectorTable.get("ethertype"):add(0x88B5, innet)
