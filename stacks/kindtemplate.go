package stacks

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks/internal/expr"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/internal/template"
	"github.com/ksctl/gitops/stacks/internal/values"
	"github.com/ksctl/gitops/stacks/problem"
)

// servedInstallFields are the fields of a KsctlInstall that a served kind sets. The others are
// those of the KsctlKind.
var servedInstallFields = []string{"interval", "retryInterval", "timeout", "suspend", "parameters", "components",
	"valuesFrom", "parametersFrom", "targetNamespace", "clusterRef", "dependsOn", "drift", "adopt", "guard", "prune",
	"force", "commonMetadata", "charts"}

// KindTemplate is the kind that a stack serves, with its expressions compiled.
type KindTemplate struct {
	Serves
	// StackVersion is the version of the stack, and Folder the folder of its file, below the root.
	StackVersion, Folder string

	install, status             *template.Template
	installSchema, statusSchema *values.Schema
	paths                       []expr.ObjectPath
}

// LoadKind reads the kind that a stack serves: <dir>/stack.yaml or <dir>/<stack>/stack.yaml below
// root. It reads no other file of the stack. It returns all problems at once, as Errors.
func LoadKind(root, dir, stack string) (*KindTemplate, error) {
	tree, err := source.Open(root)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	file, err := findFile(tree, dir, stack)
	if err != nil {
		return nil, err
	}
	def, err := readDefinition(tree, file)
	if err != nil {
		return nil, err
	}
	if err := def.checkName(stack); err != nil {
		return nil, err
	}
	return def.kind(tree)
}

// LoadKindFile is LoadKind for the stack file at a path below root.
func LoadKindFile(root, file string) (*KindTemplate, error) {
	tree, err := source.Open(root)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	clean, err := source.Clean(".", file)
	if err != nil {
		return nil, problem.Errorf(file, 0, "%w", err)
	}
	def, err := readDefinition(tree, clean)
	if err != nil {
		return nil, err
	}
	return def.kind(tree)
}

// kind returns the kind that a stack serves.
func (d *Definition) kind(tree *source.Tree) (*KindTemplate, error) {
	v := &validator{def: d, tree: tree}
	v.checkHeader()
	if d.Spec.Serves == nil {
		v.fail(d.fieldAt("spec.serves"), "is missing: the stack serves no kind")
	}
	if len(v.errs) > 0 {
		return nil, v.errs.Err()
	}
	k := v.compileKind()
	k.Folder = d.dir
	return k, v.errs.Err()
}

var (
	groupPattern   = regexp.MustCompile(`^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)+$`)
	kindPattern    = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{0,62}$`)
	versionPattern = regexp.MustCompile(`^v[0-9]+((alpha|beta)[0-9]+)?$`)
	columnTypes    = []string{"string", "integer", "number", "boolean", "date"}
)

// reservedGroups end the groups that belong to Kubernetes and to this project.
var reservedGroups = []string{"k8s.io", "kubernetes.io", "ksctl.com"}

// isReservedGroup reports whether no stack may serve a kind of a group. Groups below
// workers.ksctl.com are those of stacks in the catalog.
func isReservedGroup(group string) bool {
	return group != "workers.ksctl.com" && slices.ContainsFunc(reservedGroups, func(r string) bool {
		return group == r || strings.HasSuffix(group, "."+r)
	})
}

// compileKind checks what a stack serves, and compiles its expressions.
func (v *validator) compileKind() *KindTemplate {
	s := v.def.Spec.Serves
	at := func(field string) fieldRef { return v.def.fieldAt("spec.serves." + field) }
	v.checkServedNames(s, at)
	k := &KindTemplate{Serves: *s, StackVersion: v.def.Spec.Version}
	if _, err := s.Definition(); err != nil {
		field := "schema"
		if _, statusErr := s.servedStatus(); statusErr != nil {
			field = "statusSchema"
		}
		v.addAll(at(field), err)
		return k
	}
	if keyword := findKeyword(s.StatusSchema, "default", "format", "x-kubernetes-validations"); keyword != "" {
		v.fail(at("statusSchema"), "cannot have %s: only the API server would apply it, so that a status could not be "+
			"written, or would be written again and again", keyword)
	}
	spec, _, err := installSchemas()
	if err != nil {
		v.addAll(at("install"), err)
		return k
	}
	installSchema := restrictSchema(spec, servedInstallFields)
	k.install = v.compileTemplate(at("install"), s.Install, installSchema, false)
	k.status = v.compileTemplate(at("status"), s.Status, s.ownStatusSchema(), true)
	if len(v.errs) > 0 {
		return k
	}
	paths, errs := k.status.ObjectPaths()
	k.paths = paths
	v.addTemplateErrors(at("status"), errs)
	if k.installSchema, err = values.Compile(installSchema, values.AsWritten); err != nil {
		v.addAll(at("install"), err)
	}
	// Closed: the API server would drop unknown fields, at each write.
	if k.statusSchema, err = values.Compile(s.ownStatusSchema(), values.Closed); err != nil {
		v.addAll(at("statusSchema"), err)
	}
	return k
}

func (v *validator) checkServedNames(s *Serves, at func(string) fieldRef) {
	switch {
	case !groupPattern.MatchString(s.Group) || len(s.Group) > 253:
		v.fail(at("group"), "must be a DNS name with a dot, such as shops.example.com, not %q", s.Group)
	case isReservedGroup(s.Group):
		v.fail(at("group"), "is reserved: %q; serve a kind in a group of your own domain", s.Group)
	}
	if !kindPattern.MatchString(s.Kind) {
		v.fail(at("kind"), "must begin with an upper case letter, and have letters and digits, not %q", s.Kind)
	}
	if s.Plural != "" && !isLabel(s.Plural) {
		v.fail(at("plural"), "must be a DNS label, not %q", s.Plural)
	}
	if len(s.Versions) == 0 {
		v.fail(at("versions"), "must list at least one version, such as {name: v1alpha1}")
	}
	seen := map[string]bool{}
	for i, version := range s.Versions {
		field := at(fmt.Sprintf("versions[%d].name", i))
		switch {
		case !versionPattern.MatchString(version.Name):
			v.fail(field, "must be like v1, v1beta1 or v1alpha1, not %q", version.Name)
		case seen[version.Name]:
			v.fail(field, "is listed twice: %q", version.Name)
		}
		seen[version.Name] = true
	}
	for i, rule := range s.Validations {
		if rule.Rule == "" || rule.Message == "" {
			v.fail(at(fmt.Sprintf("validations[%d]", i)), "must have a rule and a message")
		}
	}
	for i, c := range s.Columns {
		field := func(name string) fieldRef { return at(fmt.Sprintf("columns[%d].%s", i, name)) }
		if c.Name == "" {
			v.fail(field("name"), "is missing")
		}
		if !slices.Contains(columnTypes, c.Type) {
			v.fail(field("type"), "must be one of %s, not %q", strings.Join(columnTypes, ", "), c.Type)
		}
		if !strings.HasPrefix(c.Path, ".") {
			v.fail(field("path"), "must be a JSON path such as .status.url, not %q", c.Path)
		}
	}
}

// ownStatusSchema returns the schema of the fields that Status sets: those of StatusSchema, and
// conditions.
func (s *Serves) ownStatusSchema() map[string]any {
	// As metav1.Condition: the API server refuses a whole status because of one condition.
	own := map[string]any{"conditions": map[string]any{"type": "array", "items": map[string]any{"type": "object",
		"required": []any{"type", "status", "reason"}, "properties": map[string]any{
			"type": map[string]any{"type": "string", "maxLength": 316,
				"pattern": "^[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$"},
			"reason": map[string]any{"type": "string", "maxLength": 1024,
				"pattern": "^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$"},
			"message": map[string]any{"type": "string", "maxLength": 32768},
			"status":  map[string]any{"type": "string", "enum": []any{"True", "False", "Unknown"}}}}}}
	maps.Copy(own, propertiesOf(s.StatusSchema))
	return map[string]any{"type": "object", "properties": own}
}

func (v *validator) compileTemplate(at fieldRef, value, schema map[string]any, status bool) *template.Template {
	if value == nil {
		value = map[string]any{}
	}
	compiler, err := expr.NewServedCompiler(typedSchema(v.def.Spec.Serves.Schema), status)
	if err != nil {
		v.addAll(at, err)
		return nil
	}
	compiled, errs := template.Compile(compiler, value, schema, at.path)
	v.addTemplateErrors(at, errs)
	return compiled
}

// addTemplateErrors adds errors whose messages begin with their field.
func (v *validator) addTemplateErrors(at fieldRef, errs problem.Errors) {
	for _, e := range errs {
		own := v.def.fieldAt(e.Field).errorf("%s", e.Message)
		own.Line, own.Suggestion = v.def.lines.Of(at.path), e.Suggestion
		v.add(own)
	}
}

// findKeyword returns the first of some keywords that a schema has; empty if it has none.
func findKeyword(schema map[string]any, keywords ...string) string {
	for _, keyword := range keywords {
		if _, has := schema[keyword]; has {
			return keyword
		}
	}
	properties := propertiesOf(schema)
	for _, name := range slices.Sorted(maps.Keys(properties)) {
		property, _ := properties[name].(map[string]any)
		if keyword := findKeyword(property, keywords...); keyword != "" {
			return keyword
		}
	}
	for _, name := range []string{"items", "additionalProperties"} {
		if sub, ok := schema[name].(map[string]any); ok {
			if keyword := findKeyword(sub, keywords...); keyword != "" {
				return keyword
			}
		}
	}
	return ""
}

// restrictSchema returns a schema of some of the fields of a schema, none of them required.
func restrictSchema(schema map[string]any, fields []string) map[string]any {
	properties := map[string]any{}
	for _, name := range fields {
		properties[name] = propertiesOf(schema)[name]
	}
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
}

// typedSchema returns a schema of a CustomResourceDefinition for the types of expressions: where
// unknown fields are kept, its fields have any type.
func typedSchema(schema map[string]any) map[string]any {
	if schema["x-kubernetes-preserve-unknown-fields"] == true {
		return map[string]any{"type": "object", "additionalProperties": true}
	}
	out := map[string]any{}
	for key, value := range schema {
		sub, isSchema := value.(map[string]any)
		switch {
		case key == "properties" && isSchema:
			properties := map[string]any{}
			for name, property := range sub {
				p, _ := property.(map[string]any)
				properties[name] = typedSchema(p)
			}
			out[key] = properties
		case (key == "items" || key == "additionalProperties") && isSchema:
			out[key] = typedSchema(sub)
		case slices.Contains([]string{"anyOf", "oneOf", "allOf", "not"}, key) && schema["type"] != nil:
			// In a structural schema they only restrict what the type allows.
		default:
			out[key] = value
		}
	}
	return out
}

// Install returns the spec of the install of an object, with the fields that the stack sets.
// Sensitive fields are in the second result: the data of a Secret named SensitiveFields, to which
// the spec refers.
func (k *KindTemplate) Install(ctx context.Context, object map[string]any) (spec appsv1.KsctlInstallSpec,
	sensitive map[string][]byte, err error) {
	value, err := k.install.Eval(ctx, map[string]any{expr.SelfVariable: k.self(object)})
	if err != nil {
		return spec, nil, err
	}
	install, _ := value.(map[string]any)
	moved, err := moveSensitive(install)
	if err != nil {
		return spec, nil, err
	}
	if violations := k.installSchema.Validate(install); len(violations) > 0 {
		var out []string
		for _, violation := range violations {
			out = append(out, violation.String())
		}
		return spec, nil, problem.Newf("spec.serves.install: %s", strings.Join(out, "; "))
	}
	raw, err := json.Marshal(install)
	if err == nil {
		err = json.Unmarshal(raw, &spec)
	}
	moved.addTo(&spec)
	return spec, moved.data, err
}

// self returns the variable self for an object. Sensitive fields are secrets in it.
func (k *KindTemplate) self(object map[string]any) map[string]any {
	metadata, _ := object["metadata"].(map[string]any)
	own := map[string]any{"name": metadata["name"], "namespace": metadata["namespace"]}
	for _, field := range []string{"labels", "annotations"} {
		if own[field] = metadata[field]; own[field] == nil {
			own[field] = map[string]any{}
		}
	}
	spec, _ := object["spec"].(map[string]any)
	if spec == nil {
		spec = map[string]any{}
	}
	return map[string]any{"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata": own,
		"spec": withSecrets(spec, k.Schema, "spec")}
}

// withSecrets returns a copy of a value with a secret in place of each text whose schema has the
// format password.
func withSecrets(value any, schema map[string]any, path string) any {
	switch v := value.(type) {
	case string:
		if schema["format"] == "password" {
			return expr.NewSecret(path, v)
		}
	case map[string]any:
		more, _ := schema["additionalProperties"].(map[string]any)
		out := make(map[string]any, len(v))
		for name, item := range v {
			property, known := propertiesOf(schema)[name].(map[string]any)
			if !known {
				property = more
			}
			out[name] = withSecrets(item, property, path+"."+name)
		}
		return out
	case []any:
		items, _ := schema["items"].(map[string]any)
		out := make([]any, len(v))
		for i := range v {
			out[i] = withSecrets(v[i], items, fmt.Sprintf("%s[%d]", path, i))
		}
		return out
	}
	return value
}
