// Package metrics says in numbers how the objects of our kinds stand. Every series
// goes with the object that it is about.
package metrics
