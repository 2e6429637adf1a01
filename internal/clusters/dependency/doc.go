// Package dependency tells which objects installs depend on, and watches single objects
// of any kind that others depend on. It keeps nothing of them but the resource
// version: who depends on one is woken when that changes, and looks at the object
// with its own rights.
package dependency
