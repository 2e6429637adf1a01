// Package dependency determines the objects that installs depend on, and watches single objects of
// any kind that others depend on. It stores only their resource versions. When one changes, its
// dependents are notified and read the object with their own permissions.
package dependency
