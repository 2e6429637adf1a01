package convert

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
)

// convertKind converts the objects of a kind. What another object renders is converted as it is
// rendered, with the patches and the namespace from there; its own file only says where it is.
func (c *converter) convertKind(group, kind string, convert func(*converter, *Object)) {
	scratch := *c
	scratch.result, scratch.rendered = Result{Files: map[string][]byte{}}, slices.Clone(c.rendered)
	for i := range c.opts.Objects {
		if o := &c.opts.Objects[i]; o.is(group, kind) && kind != "HelmRelease" {
			convert(&scratch, o)
		}
	}
	below := map[*Object]bool{}
	for i := range scratch.rendered {
		if o := &scratch.rendered[i]; o.is(group, kind) {
			for _, from := range c.givenOf(o) {
				below[from] = below[from] || from != o.parent.object
			}
		}
	}
	for i := range c.opts.Objects {
		if o := &c.opts.Objects[i]; o.is(group, kind) && !below[o] {
			convert(c, o)
		}
	}
	for i := 0; i < len(c.rendered); i++ { // a conversion may add to it
		if o := c.rendered[i]; o.is(group, kind) {
			c.convertRendered(&o, convert)
		}
	}
	for i := range c.opts.Objects { // what renders each other
		if o := &c.opts.Objects[i]; o.is(group, kind) && !c.hasBegun(o) {
			convert(c, o)
		}
	}
}

// convertRendered converts an object that another one renders, if that is not the object itself.
func (c *converter) convertRendered(o *Object, convert func(*converter, *Object)) {
	all := c.givenOf(o)
	for parent := o.parent; parent != nil; parent = parent.object.parent {
		if slices.Contains(all, parent.object) ||
			parent.object.group() == o.group() && parent.ref == o.ref() {
			return
		}
	}
	if o.group() == kustomizeGroup && len(all) == 0 {
		return // only those that are named are converted
	}
	o.given = all
	if len(o.parent.refused) > 0 {
		v := &conversion{object: o, ref: o.ref()}
		c.begun = append(c.begun, v)
		c.staysWithParent(v)
		return
	}
	if o.parent.kept && len(all) > 0 {
		from := all[0]
		if from.File == "" { // that of the cluster is what is applied
			if !c.hasBegun(from) {
				convert(c, from)
			}
			return
		}
		o.File, o.Line, o.node, o.encrypted = from.File, from.Line, nil, from.encrypted
		if reflect.DeepEqual(o.Value["spec"], from.Value["spec"]) {
			o.node = from.node
		}
	}
	convert(c, o)
}

// hasBegun reports whether a given object is converted, or listed as one that is not.
func (c *converter) hasBegun(o *Object) bool {
	return slices.ContainsFunc(c.begun, func(v *conversion) bool {
		return v.object == o || slices.Contains(v.object.given, o)
	})
}

// staysWithParent lists an object that stays, because what renders it does.
func (c *converter) staysWithParent(v *conversion) {
	v.refuse("", fmt.Sprintf("%s, which renders it, is not converted", v.object.parent.ref))
	c.result.Refused = append(c.result.Refused, v.refused...)
}

// givenOf returns the given objects that another one renders: those of its name in the files that
// it reads, with patches, or the only one that is in no file of the repository. The first one is
// the most similar.
func (c *converter) givenOf(o *Object) []*Object {
	var read, moved, elsewhere []*Object
	ref := o.ref()
	for i := range c.opts.Objects {
		g := &c.opts.Objects[i]
		have := g.ref()
		if g.group() != o.group() || have.kind != ref.kind || have.name != ref.name {
			continue
		}
		same := have.namespace == ref.namespace || have.namespace == ""
		switch {
		case o.parent.reads(g.File) && same:
			read = append(read, g)
		case o.parent.reads(g.File):
			moved = append(moved, g)
		case same && (g.File == "" || path.IsAbs(g.File) || strings.HasPrefix(g.File, "../")):
			elsewhere = append(elsewhere, g)
		}
	}
	if len(elsewhere) > 1 {
		elsewhere = nil
	}
	if len(read) == 0 {
		read = moved
	}
	slices.SortStableFunc(read, func(a, b *Object) int { return likeness(b, o) - likeness(a, o) })
	return append(read, elsewhere...)
}

// likeness is the number of fields of the spec that two objects have in common.
func likeness(a, b *Object) (count int) {
	spec, _ := a.Value["spec"].(map[string]any)
	for key, value := range spec {
		if reflect.DeepEqual(value, nested(b.Value, "spec", key)) {
			count++
		}
	}
	return count
}

// reads reports whether the object renders a file.
func (v *conversion) reads(file string) bool {
	file = path.Clean(file)
	return v.files[file] || slices.ContainsFunc(v.folders, func(folder string) bool {
		return strings.HasPrefix(file, folder+"/")
	})
}

// readsFiles returns a function that adds files which the object renders.
func (v *conversion) readsFiles(work string) func(string) {
	return func(file string) {
		if rel, err := filepath.Rel(work, file); err == nil {
			if v.files == nil {
				v.files = map[string]bool{}
			}
			v.files[filepath.ToSlash(rel)] = true
		}
	}
}

// isFormer reports whether an object is of a kind that is converted, or listed.
func isFormer(o Object) bool {
	return o.is(kustomizeGroup, "Kustomization") || o.is(helmGroup, "HelmRelease") || o.is(argoGroup, "Application") ||
		o.is(argoGroup, "ApplicationSet")
}

// checkComplete returns an error that names each given object that is in no list of the result.
func (c *converter) checkComplete() error {
	var errs []error
	for i := range c.opts.Objects {
		o := &c.opts.Objects[i]
		if !isFormer(*o) || o.ref().kind == "ApplicationSet" {
			continue
		}
		listed := slices.ContainsFunc(c.begun, func(v *conversion) bool {
			return (v.object == o || slices.Contains(v.object.given, o)) && (v.kept || len(v.refused) > 0 ||
				slices.Contains(c.all, v) || slices.Contains(c.dissolved, v))
		})
		if !listed {
			errs = append(errs, fmt.Errorf("%s %s was not converted: another object of this name was taken for it; "+
				"convert it on its own", o.File, o.ref()))
		}
	}
	return errors.Join(errs...)
}
