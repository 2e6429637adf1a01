package plan

// ignoresHealth is true for an object that need not be ready. A hook, a Job, a Namespace and a
// CustomResourceDefinition always count: what follows needs them.
func (it *Item) ignoresHealth() bool {
	isNamespace := it.Group == "" && it.Kind == "Namespace"
	return it.IgnoreHealth && !it.RunsOnce && !isNamespace && it.Serves == nil
}
