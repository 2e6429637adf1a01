-- What is suspended does not answer a request, but can be resumed.
local suspended = obj.spec ~= nil and obj.spec.suspend == true
return {
  reconcile = { disabled = suspended },
  suspend = { disabled = suspended },
  resume = { disabled = not suspended },
}
