// Package template evaluates values in which some values are CEL expressions: {expr: CEL}.
package template

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/expr"
	"github.com/ksctl/gitops/stacks/problem"
)

// exprKey is the only key of a mapping that is an expression.
const exprKey = "expr"

// Template is a compiled value.
type Template struct {
	// path of the value, for messages.
	path string
	// One of these is set; all are nil for a literal null.
	literal    any
	expression *expr.Expression
	fields     map[string]*Template
	items      []*Template
}

// Compile compiles the expressions of a value. Each place that has a type according to an OpenAPI
// schema takes a literal or an expression of that type. The errors have the path of their field,
// which begins with path.
func Compile(c *expr.Compiler, value any, schema map[string]any, path string) (*Template, problem.Errors) {
	t := &Template{path: path}
	want := typeOf(schema)
	switch v := value.(type) {
	case map[string]any:
		if source, is := v[exprKey]; is && len(v) == 1 {
			text, isText := source.(string)
			if !isText {
				return t, t.fail("needs a CEL expression as text in expr")
			}
			var err error
			if t.expression, err = c.CompileType(text, want); err != nil {
				return t, t.fail("%s", err)
			}
			return t, nil
		}
		if want != "" && want != "object" {
			return t, t.fail("must be of type %s, not object", want)
		}
		return t, t.compileFields(c, v, schema)
	case []any:
		if want != "" && want != "array" {
			return t, t.fail("must be of type %s, not array", want)
		}
		items, _ := schema["items"].(map[string]any)
		var errs problem.Errors
		t.items = make([]*Template, len(v))
		for i := range v {
			var more problem.Errors
			t.items[i], more = Compile(c, v[i], items, fmt.Sprintf("%s[%d]", path, i))
			errs = append(errs, more...)
		}
		return t, errs
	}
	t.literal = value
	if got := literalType(value); want != "" && got != want && (want != "number" || got != "integer") && value != nil {
		return t, t.fail("must be of type %s, not %s", want, got)
	}
	return t, nil
}

func (t *Template) compileFields(c *expr.Compiler, v, schema map[string]any) (errs problem.Errors) {
	t.fields = map[string]*Template{}
	properties, _ := schema["properties"].(map[string]any)
	more, _ := schema["additionalProperties"].(map[string]any)
	open := schema["x-kubernetes-preserve-unknown-fields"] == true || more != nil ||
		schema["additionalProperties"] == true || properties == nil
	for _, key := range slices.Sorted(maps.Keys(v)) {
		field := document.Join(t.path, key)
		property, known := properties[key].(map[string]any)
		switch {
		case !known && !open:
			errs = append(errs, &problem.Error{Field: field, Message: fmt.Sprintf("field %q is not known", field),
				Suggestion: problem.Nearest(key, slices.Sorted(maps.Keys(properties)))})
			continue
		case !known:
			property = more
		}
		child, childErrs := Compile(c, v[key], property, field)
		t.fields[key] = child
		errs = append(errs, childErrs...)
	}
	return errs
}

func (t *Template) fail(format string, args ...any) problem.Errors {
	return problem.Errors{&problem.Error{Field: t.path,
		Message: fmt.Sprintf("field %q %s", t.path, fmt.Sprintf(format, args...))}}
}

// typeOf returns the JSON type of a schema; empty if it allows several.
func typeOf(schema map[string]any) string {
	if schema["x-kubernetes-int-or-string"] == true {
		return ""
	}
	t, _ := schema["type"].(string)
	return t
}

func literalType(v any) string {
	switch v.(type) {
	case string:
		return "string"
	case bool:
		return "boolean"
	case float64:
		return "number"
	case nil:
		return "null"
	}
	return "integer"
}

// FieldError is the error of the expression of a field.
type FieldError struct {
	Field string
	Err   error
}

func (e *FieldError) Error() string { return fmt.Sprintf("field %q %s", e.Field, e.Err) }

// Unwrap returns the error of the expression.
func (e *FieldError) Unwrap() error { return e.Err }

// Eval returns the value. A field whose expression returns null, or an optional value without a
// value, is left out, and so is a field whose expression fails. err joins a *FieldError for each of
// these.
func (t *Template) Eval(ctx context.Context, vars map[string]any) (value any, err error) {
	value, _, err = t.eval(ctx, vars)
	return value, err
}

func (t *Template) eval(ctx context.Context, vars map[string]any) (value any, ok bool, err error) {
	switch {
	case t.expression != nil:
		value, ok, err := t.expression.EvalServed(ctx, vars)
		if err != nil {
			err = &FieldError{Field: t.path, Err: err}
		}
		return value, ok && value != nil, err
	case t.fields != nil:
		out := make(map[string]any, len(t.fields))
		var errs []error
		for _, key := range slices.Sorted(maps.Keys(t.fields)) {
			value, ok, err := t.fields[key].eval(ctx, vars)
			errs = append(errs, err)
			if ok {
				out[key] = value
			}
		}
		return out, true, errors.Join(errs...)
	case t.items != nil:
		out := make([]any, 0, len(t.items))
		var errs []error
		for _, item := range t.items {
			value, ok, err := item.eval(ctx, vars)
			errs = append(errs, err)
			if ok {
				out = append(out, value)
			}
		}
		return out, true, errors.Join(errs...)
	}
	return t.literal, true, nil
}

// ObjectPaths returns the fields of objects that the expressions read.
func (t *Template) ObjectPaths() (out []expr.ObjectPath, errs problem.Errors) {
	if t.expression != nil {
		paths, err := t.expression.ObjectPaths()
		if err != nil {
			errs = t.fail("%s", err)
		}
		return paths, errs
	}
	for _, key := range slices.Sorted(maps.Keys(t.fields)) {
		more, moreErrs := t.fields[key].ObjectPaths()
		out, errs = append(out, more...), append(errs, moreErrs...)
	}
	for _, item := range t.items {
		more, moreErrs := item.ObjectPaths()
		out, errs = append(out, more...), append(errs, moreErrs...)
	}
	return out, errs
}
