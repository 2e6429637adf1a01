package kind

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/ksctl/gitops/stacks"
)

// composition records which served kinds have objects of which other ones in their stacks. The zero
// value is empty.
type composition struct {
	mu sync.Mutex
	// parts are the kinds in the stacks of a kind, by its key. known are the kinds whose existing
	// objects were read.
	parts map[string]map[string]bool
	known map[string]bool
}

// add records that the stack of a kind has objects of another kind. With that, the kinds could
// contain each other without end: then it records nothing, and returns the kinds of the cycle. read
// returns the kinds in the inventories of the objects of a kind.
func (c *composition) add(kind, part string, read func(kind string) ([]string, error)) (cycle []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.parts == nil {
		c.parts, c.known = map[string]map[string]bool{}, map[string]bool{}
	}
	if c.parts[kind][part] {
		return nil, nil
	}
	path, err := c.path(part, kind, map[string]bool{}, read)
	switch {
	case err != nil:
		return nil, err
	case path != nil:
		return append([]string{kind}, path...), nil
	}
	c.record(kind, part)
	return nil, nil
}

func (c *composition) record(kind, part string) {
	if c.parts[kind] == nil {
		c.parts[kind] = map[string]bool{}
	}
	c.parts[kind][part] = true
}

// path returns kinds from one kind to another, each of which has the next one in its stack; nil if
// there is no path.
func (c *composition) path(from, to string, visited map[string]bool,
	read func(kind string) ([]string, error)) ([]string, error) {
	if from == to {
		return []string{to}, nil
	}
	if visited[from] {
		return nil, nil
	}
	visited[from] = true
	if !c.known[from] {
		parts, err := read(from)
		if err != nil {
			return nil, err
		}
		for _, part := range parts {
			c.record(from, part)
		}
		c.known[from] = true
	}
	for _, part := range slices.Sorted(maps.Keys(c.parts[from])) {
		path, err := c.path(part, to, visited, read)
		if err != nil {
			return nil, err
		}
		if path != nil {
			return append([]string{from}, path...), nil
		}
	}
	return nil, nil
}

// forget drops what is known about the stacks of a kind.
func (c *composition) forget(kind string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.parts, kind)
	delete(c.known, kind)
}

// mayContain returns the kinds of a cycle that an object of a kind in the stack of this kind would
// close; nil if there is none.
func (p *publishedKind) mayContain(ctx context.Context, part string) ([]string, error) {
	if p.kinds.get(part) == nil {
		return nil, nil
	}
	return p.kinds.composition.add(p.key(), part, func(kind string) ([]string, error) {
		return p.kinds.partsOf(ctx, kind)
	})
}

// partsOf returns the served kinds in the inventories of the objects of a kind.
func (k *Kinds) partsOf(ctx context.Context, kind string) (out []string, err error) {
	p := k.get(kind)
	if p == nil {
		return nil, nil
	}
	var list ObjectList
	if err := p.direct.List(ctx, &list); err != nil {
		return nil, err
	}
	for i := range list.Items {
		inventory := list.Items[i].Status.Inventory
		if inventory == nil {
			continue
		}
		for _, e := range inventory.Entries {
			ref, err := stacks.ParseID(e.ID)
			if err == nil && k.get(ref.Kind+"."+ref.Group) != nil && !slices.Contains(out, ref.Kind+"."+ref.Group) {
				out = append(out, ref.Kind+"."+ref.Group)
			}
		}
	}
	return out, nil
}
