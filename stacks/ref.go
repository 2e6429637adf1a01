package stacks

import (
	"fmt"
	"strings"
)

const rbacGroup = "rbac.authorization.k8s.io"

// ID returns <namespace>_<name>_<group>_<kind>, the format of Flux inventories (cli-utils
// pkg/object). A colon in the name of an RBAC object becomes "__".
func (r Ref) ID() string {
	name := r.Name
	if r.Group == rbacGroup {
		name = strings.ReplaceAll(name, ":", "__")
	}
	return r.Namespace + "_" + name + "_" + r.Group + "_" + r.Kind
}

// ParseID is the inverse of ID. It returns an error for fewer than three underscores, or without
// a name or kind.
func ParseID(id string) (Ref, error) {
	namespace, rest, _ := strings.Cut(id, "_")
	k := strings.LastIndexByte(rest, '_')
	g := strings.LastIndexByte(rest[:max(k, 0)], '_')
	if g < 0 {
		return Ref{}, fmt.Errorf("object id %q is not <namespace>_<name>_<group>_<kind>", id)
	}
	r := Ref{Namespace: namespace, Name: rest[:g], Group: rest[g+1 : k], Kind: rest[k+1:]}
	if r.Name == "" || r.Kind == "" {
		return Ref{}, fmt.Errorf("object id %q has no name or no kind", id)
	}
	if r.Group == rbacGroup {
		r.Name = strings.ReplaceAll(r.Name, "__", ":")
	}
	return r, nil
}

// String returns "Kind namespace/name", for messages.
func (r Ref) String() string {
	if r.Namespace == "" {
		return r.Kind + " " + r.Name
	}
	return r.Kind + " " + r.Namespace + "/" + r.Name
}
