package live

import (
	"fmt"
	"strings"
)

const (
	// OwnerLabel selects what to watch. Its value is the id of the installation.
	OwnerLabel = "ksctl.com/owner-id"
	// MarkAnnotation says who manages the object: "<owner key>|<object id>".
	MarkAnnotation = "ksctl.com/mark"
	// ReadyExprAnnotation is a CEL expression over the object that says whether
	// it is ready. The object carries it so that a projection is a pure function
	// of the object.
	ReadyExprAnnotation = "ksctl.com/ready-expr"
	// IgnoreAnnotation is a JSON array of JSON pointers to fields that are not
	// ours to keep.
	IgnoreAnnotation = "ksctl.com/ignore"
	// FieldManager is the field manager that objects are applied with.
	FieldManager = "ksctl-gitops"
)

const markSeparator = "|"

// Mark says who manages an object and which object that is. An object whose
// mark has the id of another object is a copy.
type Mark struct {
	// Owner is the key of the owner. It has no "|".
	Owner string
	// ID of the object, as stacks.Ref.ID gives it.
	ID string
}

// String is the value of MarkAnnotation.
func (m Mark) String() string { return m.Owner + markSeparator + m.ID }

// ParseMark is the inverse of Mark.String. It fails on a text without a
// separator, owner or id.
func ParseMark(s string) (Mark, error) {
	// Names of RBAC objects may have the separator, owner keys have not.
	owner, id, ok := strings.Cut(s, markSeparator)
	if !ok || owner == "" || id == "" {
		return Mark{}, fmt.Errorf("mark %.100q is not <owner>%s<object id>", s, markSeparator)
	}
	return Mark{Owner: owner, ID: id}, nil
}
