package stacks

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ksctl/gitops/stacks/internal/expr"
	"github.com/ksctl/gitops/stacks/problem"
)

// ServedState is what the expressions of the status of a served kind read.
type ServedState struct {
	// Object is the served object; its status is not read.
	Object map[string]any
	// Ready is its Ready condition.
	Ready metav1.Condition
	// Objects are fields of the objects of its install, by kind and by name.
	Objects map[string]map[string]map[string]any
}

// ServedStatus are the fields of the status that a stack sets.
type ServedStatus struct {
	Fields map[string]any
	// Conditions without times.
	Conditions []metav1.Condition
}

// ObjectFields returns the fields of the objects of an install that the status reads, by kind or
// Kind.group.
func (k *KindTemplate) ObjectFields() map[string][][]string {
	out := map[string][][]string{}
	for _, p := range k.paths {
		if !slices.ContainsFunc(out[p.Kind], func(known []string) bool { return slices.Equal(known, p.Path) }) {
			out[p.Kind] = append(out[p.Kind], p.Path)
		}
	}
	return out
}

// Status returns the fields of the status of an object. A field whose expression fails is left out:
// it may read what is not there yet. err has these errors.
func (k *KindTemplate) Status(ctx context.Context, in ServedState) (out ServedStatus, err error) {
	objects := map[string]any{}
	for kind, byName := range in.Objects {
		named := map[string]any{}
		for name, fields := range byName {
			named[name] = fields
		}
		objects[kind] = named
	}
	value, err := k.status.Eval(ctx, map[string]any{expr.SelfVariable: k.self(in.Object), expr.ObjectsVariable: objects,
		expr.ReadyVariable: map[string]any{"status": string(in.Ready.Status), "reason": in.Ready.Reason,
			"message": in.Ready.Message}})
	fields, _ := value.(map[string]any)
	errs := []error{err}
	for name, field := range fields {
		if expr.FindSecret(field) != nil {
			errs = append(errs, problem.Newf("field %q is a sensitive field of the object: a status is no Secret",
				"spec.serves.status."+name))
			delete(fields, name)
		}
	}
	for _, violation := range k.statusSchema.Validate(fields) {
		errs = append(errs, problem.Newf("spec.serves.status: %s", violation.String()))
		if len(violation.Path) > 0 {
			delete(fields, violation.Path[0])
		}
	}
	out.Conditions, err = servedConditions(fields["conditions"])
	delete(fields, "conditions")
	out.Fields = fields
	return out, errors.Join(append(errs, err)...)
}

// ownConditions are the condition types of every install, which a stack can't set.
var ownConditions = []string{"Ready", "Reconciling", "Stalled"}

// servedConditions decodes the conditions that a stack sets.
func servedConditions(value any) (out []metav1.Condition, err error) {
	raw, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(raw, &out)
	}
	if err != nil {
		return nil, err
	}
	var errs []error
	out = slices.DeleteFunc(out, func(c metav1.Condition) bool {
		if !slices.Contains(ownConditions, c.Type) {
			return false
		}
		errs = append(errs, fmt.Errorf("spec.serves.status.conditions: the condition %s is that of the install; "+
			"use another type", c.Type))
		return true
	})
	return out, errors.Join(errs...)
}
