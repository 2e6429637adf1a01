package live

import (
	"fmt"
	"strings"
)

const (
	// OwnerLabel selects the objects to watch. Its value is the id of the installation.
	OwnerLabel = "ksctl.com/owner-id"
	// MarkAnnotation identifies the owner of an object: "<owner key>|<object id>".
	MarkAnnotation = "ksctl.com/mark"
	// ReadyExprAnnotation is a CEL expression over the object that evaluates to true when
	// the object is ready. The object carries it so that its projection is a pure function
	// of the object.
	ReadyExprAnnotation = "ksctl.com/ready-expr"
	// IgnoreAnnotation is a JSON array of JSON pointers to fields whose live values the
	// controllers leave unchanged.
	IgnoreAnnotation = "ksctl.com/ignore"
	// ReportAnnotation is a JSON array of paths to fields whose values the index keeps, because the
	// status of the owner reports them. A path is an array of keys.
	ReportAnnotation = "ksctl.com/report"
	// SensitiveAnnotation is "true" on an object that may have values of a Secret. The hash of its
	// owned fields, which is published, is keyed.
	SensitiveAnnotation = "ksctl.com/sensitive"
	// FieldManager is the field manager of the applies of managed objects.
	FieldManager = "ksctl-gitops"
)

const markSeparator = "|"

// Mark is the parsed value of MarkAnnotation: the owner of an object and the id of that object.
// An object whose mark has the id of another object is a copy.
type Mark struct {
	// Owner is the key of the owner. It contains no "|".
	Owner string
	// ID is the stacks.Ref.ID of the object.
	ID string
}

// String returns the value of MarkAnnotation.
func (m Mark) String() string { return m.Owner + markSeparator + m.ID }

// ParseMark is the inverse of Mark.String. It fails if the separator, the owner or the id is
// missing.
func ParseMark(s string) (Mark, error) {
	// Names of RBAC objects may contain the separator; owner keys never do.
	owner, id, ok := strings.Cut(s, markSeparator)
	if !ok || owner == "" || id == "" {
		return Mark{}, fmt.Errorf("mark %.100q is not <owner>%s<object id>", s, markSeparator)
	}
	return Mark{Owner: owner, ID: id}, nil
}
