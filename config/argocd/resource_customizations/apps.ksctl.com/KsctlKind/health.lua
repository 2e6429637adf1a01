-- Argo CD's view of spec.suspend and the condition Ready, which counts only
-- where it answers the spec as it is now.
local function health(status, message)
  return { status = status, message = message }
end

local status = obj.status or {}
local ready = {}
for _, condition in ipairs(status.conditions or {}) do
  if condition.type == "Ready" then
    ready = condition
  end
end

if obj.metadata.deletionTimestamp ~= nil then
  if ready.status == nil or ready.status == "True" then
    return health("Progressing", "Being deleted")
  end
  return health("Progressing", ready.message)
end
if obj.spec ~= nil and obj.spec.suspend == true then
  return health("Suspended", "spec.suspend is set")
end
local generation = obj.metadata.generation
if ready.status == nil or status.observedGeneration ~= generation or ready.observedGeneration ~= generation then
  return health("Progressing", "The controller has not seen this spec yet")
end
if ready.status == "True" then
  return health("Healthy", ready.message)
end
-- False is a failure, also one that is tried again; Unknown is on its way.
if ready.status == "False" then
  return health("Degraded", ready.message)
end
return health("Progressing", ready.message)
