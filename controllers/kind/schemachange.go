package kind

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	schemacel "k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/listtype"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/controller-runtime/pkg/client"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/controllers/reconcile"
)

// objectSchema is a schema of the spec of objects, as the API server uses it.
type objectSchema struct {
	structural *structuralschema.Structural
	validator  validation.SchemaValidator
	rules      *schemacel.Validator
}

func newObjectSchema(spec *apiextensionsv1.JSONSchemaProps) (*objectSchema, error) {
	var internal apiextensions.JSONSchemaProps
	if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(spec, &internal,
		nil); err != nil {
		return nil, err
	}
	structural, err := structuralschema.NewStructural(&internal)
	if err != nil {
		return nil, err
	}
	validator, _, err := validation.NewSchemaValidator(&internal)
	return &objectSchema{structural: structural, validator: validator,
		rules: schemacel.NewValidator(structural, false, celconfig.PerCallLimit)}, err
}

// check returns why the spec of an existing object does not fit the schema: the fields that it
// would lose, and those that are invalid. It contains no values, which may be sensitive.
func (s *objectSchema) check(ctx context.Context, spec map[string]any) (out []string) {
	spec = runtime.DeepCopyJSON(spec)
	for _, lost := range pruning.PruneWithOptions(spec, s.structural, false,
		structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true, ParentPath: []string{"spec"}}) {
		out = append(out, lost+" would be lost")
	}
	defaulting.Default(spec, s.structural)
	root := field.NewPath("spec")
	errs := validation.ValidateCustomResource(root, spec, s.validator)
	errs = append(errs, listtype.ValidateListSetsAndMaps(root, s.structural, spec)...)
	if s.rules != nil && len(errs) == 0 {
		invalid, _ := s.rules.Validate(ctx, root, s.structural, spec, nil, celconfig.RuntimeCELCostBudget)
		errs = append(errs, invalid...)
	}
	for _, err := range errs {
		out = append(out, fmt.Sprintf("%s: %s", err.Field, strings.ToLower(err.Type.String())))
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// maxMisfits is the maximum number of objects that a message about a schema names.
const maxMisfits = 5

// checkSchemaChange returns an error if objects exist that do not fit a changed schema.
func (s *Steps) checkSchemaChange(ctx context.Context, want, have *apiextensionsv1.CustomResourceDefinition) error {
	before, after := specSchema(have), specSchema(want)
	if before == nil || sameJSON(before, after) {
		return nil
	}
	check, err := newObjectSchema(after)
	if err != nil {
		return err
	}
	var misfits []string
	err = s.eachObject(ctx, storedKind(have), func(o *unstructured.Unstructured) error {
		spec, _, _ := unstructured.NestedMap(o.Object, "spec")
		if problems := check.check(ctx, spec); spec != nil && len(problems) > 0 {
			misfits = append(misfits, fmt.Sprintf("%s/%s (%s)", o.GetNamespace(), o.GetName(),
				reconcile.JoinNames(problems)))
		}
		return nil
	})
	if err != nil || len(misfits) == 0 {
		return err
	}
	message := strings.Join(misfits[:min(len(misfits), maxMisfits)], "; ")
	if more := len(misfits) - maxMisfits; more > 0 {
		message += fmt.Sprintf("; and %d more", more)
	}
	return reconcile.NewTerminalError(appsv1.SchemaChangeRefusedReason,
		"%d objects do not fit the changed spec.serves.schema: %s; change these objects, or the schema", len(misfits),
		message)
}

// specSchema returns the schema of the spec of the stored version; nil if there is none.
func specSchema(d *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.JSONSchemaProps {
	for _, v := range d.Spec.Versions {
		if v.Storage && v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
			if spec, ok := v.Schema.OpenAPIV3Schema.Properties["spec"]; ok {
				return &spec
			}
		}
	}
	return nil
}

// sameJSON reports whether two values have the same JSON.
func sameJSON(a, b any) bool {
	x, errX := runtime.DefaultUnstructuredConverter.ToUnstructured(a)
	y, errY := runtime.DefaultUnstructuredConverter.ToUnstructured(b)
	return errX == nil && errY == nil && apiequality.Semantic.DeepEqual(x, y)
}

// listChunk is the number of objects in one response of the API server.
const listChunk = 500

// eachObject calls f for each object of a kind, as the API server has it.
func (s *Steps) eachObject(ctx context.Context, gvk schema.GroupVersionKind,
	f func(*unstructured.Unstructured) error) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
	for next := true; next; next = list.GetContinue() != "" {
		if err := s.Direct.List(ctx, list, client.Limit(listChunk), client.Continue(list.GetContinue())); err != nil {
			return fmt.Errorf("listing the objects of %s: %w", gvk.Kind, err)
		}
		for i := range list.Items {
			if err := f(&list.Items[i]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Versions in which objects may be stored
//
// The API server refuses a CustomResourceDefinition without a version of status.storedVersions.
// When the stored version changes, all objects are written again, and the other versions leave that
// list.
// https://kubernetes.io/docs/tasks/extend-kubernetes/custom-resources/custom-resource-definition-versioning/#upgrade-existing-objects-to-a-new-stored-version

// addStoredVersions adds the versions that objects may be stored in to a CustomResourceDefinition,
// and does not serve them.
func addStoredVersions(want, have *apiextensionsv1.CustomResourceDefinition) {
	for _, name := range have.Status.StoredVersions {
		if slices.ContainsFunc(want.Spec.Versions,
			func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == name }) {
			continue
		}
		v := want.Spec.Versions[0].DeepCopy()
		v.Name, v.Served, v.Storage = name, false, false
		want.Spec.Versions = append(want.Spec.Versions, *v)
	}
}

// rewriteStored writes the objects of a kind again if they may be stored in another version than
// that of the CustomResourceDefinition, and records that they are not. The change of the
// CustomResourceDefinition wakes its KsctlKind.
func (s *Steps) rewriteStored(ctx context.Context, d *apiextensionsv1.CustomResourceDefinition) error {
	gvk := storedKind(d)
	if !isEstablished(d) || len(d.Status.StoredVersions) < 2 {
		return nil
	}
	err := s.eachObject(ctx, gvk, func(o *unstructured.Unstructured) error {
		return client.IgnoreNotFound(s.Direct.Patch(ctx, o, client.RawPatch(types.MergePatchType,
			[]byte("{}")), client.FieldOwner(s.FieldOwner)))
	})
	if err != nil {
		return fmt.Errorf("storing the objects in version %s: %w", gvk.Version, err)
	}
	patch := fmt.Sprintf(`{"metadata":{"resourceVersion":%q},"status":{"storedVersions":[%q]}}`, d.ResourceVersion,
		gvk.Version)
	return s.Direct.Status().Patch(ctx, unstructuredDefinition(d.Name),
		client.RawPatch(types.MergePatchType, []byte(patch)))
}
