package expr

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/google/cel-go/cel"
	"github.com/google/cel-go/common/decls"
	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/manifest"
	"github.com/ksctl/gitops/stacks/problem"
)

// Names of our functions. No expression can have those with an @.
const (
	yamlParseFunction    = "yaml.parse"
	sha256Function       = "sha256"
	noSecretFunction     = "@no_secret"
	base64DecodeFunction = "@base64_decode"
)

// Limits of one call of yaml.parse and sha256, beside those of values.
const (
	maxParsedBytes = 1 << 20
	maxHashedBytes = 1 << 20
)

// functions are our functions. A decoded or parsed secret is one, too.
func functions() []cel.EnvOption {
	anyType := cel.TypeParamType("T")
	unguarded := decls.DisableTypeGuards(true)
	return []cel.EnvOption{
		cel.Function(noSecretFunction, unguarded, cel.Overload("no_secret", []*cel.Type{anyType}, anyType,
			cel.UnaryBinding(refuseSecrets))),
		cel.Function(base64DecodeFunction, unguarded, cel.Overload("secret_base64_decode", []*cel.Type{cel.StringType},
			cel.BytesType, cel.UnaryBinding(decodeBase64))),
		cel.Function(yamlParseFunction, unguarded,
			cel.Overload("yaml_parse_string", []*cel.Type{cel.StringType}, cel.DynType, cel.UnaryBinding(parseYAML)),
			cel.Overload("yaml_parse_bytes", []*cel.Type{cel.BytesType}, cel.DynType, cel.UnaryBinding(parseYAML))),
		cel.Function(sha256Function, unguarded, cel.Overload("sha256_any", []*cel.Type{anyType}, cel.StringType,
			cel.UnaryBinding(sha256Of))),
	}
}

// functionCosts are the costs of the functions that take longer for larger values.
type functionCosts struct{}

// bytesPerCost is how many bytes yaml.parse reads at a cost of 1.
const bytesPerCost = 8

// CallCost implements interpreter.ActualCostEstimator.
func (functionCosts) CallCost(function, _ string, args []ref.Val, _ ref.Val) *uint64 {
	cost := uint64(1)
	switch function {
	case yamlParseFunction:
		text, _ := parsedText(args[0])
		cost += uint64(len(text) / bytesPerCost)
	case sha256Function:
		left := maxValues
		_, _ = toNative(args[0], &left, 0)
		cost += uint64(maxValues - max(left, 0))
	default:
		return nil
	}
	return &cost
}

// sha256Of is sha256: the SHA-256 of a value as JSON with sorted keys and without spaces, in
// hexadecimal digits.
func sha256Of(v ref.Val) ref.Val {
	left := maxValues
	value, err := toNative(v, &left, 0)
	if secret := FindSecret(value); secret != nil {
		return types.WrapErr(secret.misused())
	}
	if _, misused := errors.AsType[*misuseError](err); misused {
		return types.WrapErr(err)
	}
	if err != nil {
		return types.NewErr("sha256 cannot hash %w", err)
	}
	encoded, err := manifest.Canonical(value)
	if err != nil {
		return types.NewErr("sha256 failed: %w", err)
	}
	if len(encoded) > maxHashedBytes {
		return types.NewErr("sha256 cannot hash %d bytes of JSON; %d are allowed", len(encoded), maxHashedBytes)
	}
	sum := sha256.Sum256(encoded)
	return types.String(hex.EncodeToString(sum[:]))
}

// parseYAML is yaml.parse: it parses one YAML document, also of a secret.
func parseYAML(v ref.Val) ref.Val {
	secret, isSecret := v.(*Secret)
	text, isText := parsedText(v)
	switch {
	case isSecret && !isText:
		return types.NewErr("yaml.parse needs text; the value of parameter %q is none", secret.name)
	case !isText:
		return types.MaybeNoSuchOverloadErr(v)
	}
	value, err := yamlValue(text)
	switch {
	case isSecret && err != nil:
		return types.NewErr("yaml.parse of parameter %q failed: it must be one YAML document of at most %d bytes",
			secret.name, maxParsedBytes)
	case err != nil:
		return types.NewErr("yaml.parse failed: %s", err)
	case isSecret:
		return NewSecret(secret.name, value)
	}
	return types.DefaultTypeAdapter.NativeToValue(value)
}

// parsedText returns the text that yaml.parse gets; false for other values.
func parsedText(v ref.Val) (string, bool) {
	switch v := v.(type) {
	case types.String:
		return string(v), true
	case types.Bytes:
		return string(v), true
	case *Secret:
		text, isText := v.value.(string)
		return text, isText
	}
	return "", false
}

func yamlValue(text string) (any, error) {
	if len(text) > maxParsedBytes {
		return nil, problem.Newf("the text has %d bytes; %d are allowed", len(text), maxParsedBytes)
	}
	docs, err := document.Parse("", []byte(text))
	if err != nil || len(docs) == 0 {
		return nil, err
	}
	if len(docs) > 1 {
		return nil, errors.New("the text has several YAML documents")
	}
	value, err := document.Kubectl.Value("", docs[0].Root)
	if err != nil {
		return nil, err
	}
	left := maxValues
	if _, err := toNative(types.DefaultTypeAdapter.NativeToValue(value), &left, 0); err != nil {
		return nil, problem.Newf("the document has %w", err)
	}
	return value, nil
}
