-- Not removed: where the repository says nothing of it, false is no difference.
obj.spec.suspend = false
return obj
