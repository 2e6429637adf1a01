package expr

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/ast"
	"github.com/google/cel-go/common/operators"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
)

// Secret is a value from a Secret among the variables and in the result of an expression. An
// expression can pass it on, and not use it: no comparison, no field of it, no text with it.
type Secret struct {
	name  string
	value any
}

// NewSecret returns a secret value. name is that of the parameter, for messages.
func NewSecret(name string, value any) *Secret { return &Secret{name: name, value: value} }

// Name returns the name of the parameter.
func (s *Secret) Name() string { return s.name }

// String returns no part of the value: messages may have it.
func (s *Secret) String() string { return "the secret parameter " + s.name }

// GoString is like String.
func (s *Secret) GoString() string { return s.String() }

// MarshalJSON returns an error: a secret value must be revealed on purpose.
func (s *Secret) MarshalJSON() ([]byte, error) { return nil, s.misused() }

// misuseError is the error of an expression that uses a secret.
type misuseError struct{ name string }

func (e *misuseError) Error() string {
	return fmt.Sprintf("the value of parameter %q is from a Secret: an expression can only pass it on as a whole",
		e.name)
}

func (s *Secret) misused() error { return &misuseError{s.name} }

// explainMisuse adds to an error of an expression that it reads a secret. CEL reports the use of
// one as a missing overload of a function.
func (x *Expression) explainMisuse(err error, vars map[string]any) error {
	_, explained := errors.AsType[*misuseError](err)
	secret := x.readSecret(vars)
	if err == nil || explained || secret == nil {
		return err
	}
	return fmt.Errorf("%w; an expression can only pass on a value from a Secret as a whole, such as that of "+
		"parameter %q", err, secret.name)
}

// readSecret returns a secret that the expression reads; nil if there is none.
func (x *Expression) readSecret(vars map[string]any) *Secret {
	for _, variable := range []string{stackVariable, paramsVariable, SelfVariable} {
		for _, path := range x.reads[variable] {
			value := vars[variable]
			for _, key := range path {
				m, isMap := value.(map[string]any)
				if !isMap {
					break
				}
				value = m[key]
			}
			if secret := FindSecret(value); secret != nil {
				return secret
			}
		}
	}
	return nil
}

var secretType = types.NewOpaqueType("secret")

// ConvertToNative implements ref.Val.
func (s *Secret) ConvertToNative(reflect.Type) (any, error) { return nil, s.misused() }

// ConvertToType implements ref.Val.
func (s *Secret) ConvertToType(ref.Type) ref.Val { return types.WrapErr(s.misused()) }

// Equal implements ref.Val.
func (s *Secret) Equal(ref.Val) ref.Val { return types.WrapErr(s.misused()) }

// Type implements ref.Val.
func (s *Secret) Type() ref.Type { return secretType }

// Value implements ref.Val.
func (s *Secret) Value() any { return s }

// Reveal returns a copy of a value with the values in place of its secrets.
func Reveal(v any) any {
	switch v := v.(type) {
	case *Secret:
		return v.value
	case map[string]any:
		out := maps.Clone(v)
		for key, item := range out {
			out[key] = Reveal(item)
		}
		return out
	case []any:
		out := slices.Clone(v)
		for i, item := range out {
			out[i] = Reveal(item)
		}
		return out
	}
	return v
}

// FindSecret returns a secret in a value; nil if there is none.
func FindSecret(v any) *Secret {
	switch v := v.(type) {
	case *Secret:
		return v
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if s := FindSecret(v[key]); s != nil {
				return s
			}
		}
	case []any:
		for _, item := range v {
			if s := FindSecret(item); s != nil {
				return s
			}
		}
	}
	return nil
}

// maxCompared bounds the items that are searched for secrets before a comparison.
const maxCompared = 10_000

// refuseSecrets returns a value without secrets, and an error for one with secrets.
func refuseSecrets(v ref.Val) ref.Val {
	left := maxCompared
	if err := findSecret(v, &left); err != nil {
		return types.WrapErr(err)
	}
	return v
}

func findSecret(v ref.Val, left *int) error {
	if *left--; *left < 0 {
		return nil
	}
	switch v := v.(type) {
	case *Secret:
		return v.misused()
	case *types.Optional:
		if v.HasValue() {
			return findSecret(v.GetValue(), left)
		}
	case traits.Mapper:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if err := findSecret(v.Get(it.Next()), left); err != nil {
				return err
			}
		}
	case traits.Lister:
		for it := v.Iterator(); it.HasNext() == types.True; {
			if err := findSecret(it.Next(), left); err != nil {
				return err
			}
		}
	}
	return nil
}

// decodeBase64 is base64.decode, also of secrets.
func decodeBase64(v ref.Val) ref.Val {
	text, _ := v.Value().(string)
	secret, isSecret := v.(*Secret)
	if isSecret {
		text, _ = secret.value.(string)
	} else if v.Type() != types.StringType {
		return types.MaybeNoSuchOverloadErr(v)
	}
	raw, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		raw, err = base64.RawStdEncoding.DecodeString(text)
	}
	switch {
	case isSecret && err != nil:
		return types.NewErr("the value of parameter %q is no base64", secret.name)
	case err != nil:
		return types.WrapErr(err)
	case isSecret:
		return NewSecret(secret.name, string(raw))
	}
	return types.Bytes(raw)
}

// comparisons are the functions that would return false, and not an error, for a secret.
var comparisons = []string{operators.Equals, operators.NotEquals, operators.In, operators.OldIn, "sets.contains",
	"sets.equivalent", "sets.intersects"}

// refuseComparisons makes the arguments of comparisons refuse secrets, and base64.decode know them.
func refuseComparisons(parsed *cel.Ast) {
	w := newWrapper(parsed.NativeRep())
	ast.PostOrderVisit(parsed.NativeRep().Expr(), ast.NewExprVisitor(func(e ast.Expr) {
		if e.Kind() != ast.CallKind {
			return
		}
		call, name := e.AsCall(), e.AsCall().FunctionName()
		if call.IsMemberFunction() && call.Target().Kind() == ast.IdentKind {
			name = call.Target().AsIdent() + "." + name
		}
		switch {
		case name == "base64.decode" && len(call.Args()) == 1:
			e.SetKindCase(w.factory.NewCall(e.ID(), base64DecodeFunction, call.Args()...))
		case slices.Contains(comparisons, name):
			for _, arg := range call.Args() {
				if arg.Kind() != ast.LiteralKind {
					w.wrap(arg, noSecretFunction)
				}
			}
		}
	}))
}
