package convert

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
)

// Folders of what is written.
const (
	stacksFolder = "stacks"
	// installsFolder is for installs of objects that are in no file of the repository.
	installsFolder = "installs"
)

// Options are the inputs of a conversion.
type Options struct {
	// Root is the working tree of the repository with the files of the sources.
	Root string
	// Objects are converted. ConfigMaps, Secrets and sources among them are read where an object
	// refers to them.
	Objects []Object
	// Sources name what is this repository: KIND NAMESPACE/NAME of a Flux source, or the repoURL of
	// an Application. By default, it is the only source that all objects of Flux have, and that of
	// all Applications.
	Sources []string
	// Capabilities of the cluster.
	Capabilities stacks.Capabilities
	// FetchCharts fetches the charts of an install into its request. Nil refuses them.
	FetchCharts func(context.Context, *appsv1.KsctlInstall, *stacks.Request) error
}

// Converted is one object that was converted.
type Converted struct {
	// Object, in File.
	Object, File string
	// Stack and Install that it became, in StackFile and InstallFile.
	Stack, Install, StackFile, InstallFile string
	// Objects is the number of rendered objects, which were compared.
	Objects int
	// Former is the kind of the object.
	Former string
	// Rendered is true for an object that another one in File renders.
	Rendered bool
	// ReleaseNamespace and Release name the release of a HelmRelease.
	ReleaseNamespace, Release string
	// namespace and name of the object.
	namespace, name string
	// Account is true if the install names a service account.
	Account bool
}

// Result is what a conversion writes.
type Result struct {
	// Files are the contents of the new files, by path below the root.
	Files     map[string][]byte
	Converted []Converted
	// Kept are objects that stay, because they sync what is converted.
	Kept []string
	// Refused is what is not converted, and Notes are settings that the installs lack.
	Refused, Notes []Problem

	// listed are kustomizations in the folders of the installs.
	listed []string
}

type converter struct {
	ctx  context.Context
	opts Options
	// work is a copy of the repository, in which the stacks are rendered.
	work string
	// rendered are the objects of Flux and Argo CD that others render, and the ConfigMaps and
	// Secrets that HelmReleases may read.
	rendered []Object
	all      []*conversion
	// dissolved are the objects of which nothing is left but what is converted on its own.
	dissolved []*conversion
	// begun are all conversions.
	begun   []*conversion
	sources map[string]bool
	result  Result
}

// Convert converts the objects. The error is a DifferenceError if a stack would not render the same
// objects. It writes nothing to the repository.
func Convert(ctx context.Context, opts Options) (*Result, error) {
	temporary, err := os.MkdirTemp("", "ksctl-convert-")
	if err != nil {
		return nil, err
	}
	defer func() { _ = os.RemoveAll(temporary) }()
	if temporary, err = filepath.EvalSymlinks(temporary); err != nil {
		return nil, err
	}
	c := &converter{ctx: ctx, opts: opts, work: filepath.Join(temporary, "repository"),
		result: Result{Files: map[string][]byte{}}}
	root, err := filepath.EvalSymlinks(opts.Root)
	if err != nil {
		return nil, err
	}
	c.opts.Root = root
	if err := copyRepository(root, c.work); err != nil {
		return nil, err
	}
	if err := c.findSources(); err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(opts.Objects, isFormer) {
		return nil, errors.New("there is no Kustomization of Flux, HelmRelease or Application among the objects; " +
			"name their files with -f")
	}
	c.convertAll()
	c.dropRefused()
	if err := c.nameAll(); err != nil {
		return nil, err
	}
	if err := c.proveAll(); err != nil {
		return nil, err
	}
	if err := c.checkComplete(); err != nil {
		return nil, err
	}
	c.result.listed = c.listedFolders()
	return &c.result, c.emitInstalls()
}

// convertAll converts Kustomizations first: they render HelmReleases with their patches.
func (c *converter) convertAll() {
	c.convertKind(kustomizeGroup, "Kustomization", (*converter).convertKustomization)
	c.convertKind(helmGroup, "HelmRelease", (*converter).convertHelmRelease)
	c.convertKind(argoGroup, "Application", (*converter).convertApplication)
	for _, o := range c.known() {
		if o.is(argoGroup, "ApplicationSet") {
			v := &conversion{object: &o, ref: o.ref()}
			v.refuse("", "its generators are not evaluated; convert the Applications that it creates, from the cluster")
			c.result.Refused = append(c.result.Refused, v.refused...)
		}
	}
}

// known are all objects that are known: the given ones, and those that they render.
func (c *converter) known() []Object { return slices.Concat(c.opts.Objects, c.rendered) }

// repositorySource returns the source that is this repository, for an install of a namespace.
func (c *converter) repositorySource(namespace string) appsv1.SourceRef {
	for _, source := range slices.Sorted(maps.Keys(c.sources)) {
		kind, name, ok := strings.Cut(source, " ")
		if !ok {
			continue
		}
		out := appsv1.SourceRef{Kind: kind, Name: name}
		if in, name, ok := strings.Cut(name, "/"); ok {
			out.Name = name
			if in != namespace {
				out.Namespace = in
			}
		}
		return out
	}
	return appsv1.SourceRef{}
}

// begin decodes an object. It returns nil if that fails.
func (c *converter) begin(o *Object, into any) *conversion {
	lines, errs := o.decode(into)
	v := &conversion{object: o, lines: lines, ref: o.ref(), file: o.File}
	if v.ref.namespace == "" {
		v.ref.namespace = "default"
	}
	v.namespace = v.ref.namespace
	c.begun = append(c.begun, v)
	switch parent := o.parent; {
	case parent != nil && o.inFile():
		v.cluster = path.Dir(o.File)
	case parent != nil && parent.kept: // it has no file of its own
		v.cluster, v.file = path.Join(parent.cluster, parent.ref.name), ""
	case parent != nil:
		v.cluster, v.file = parent.cluster, parent.file
	case o.File != "":
		v.cluster = path.Dir(o.File)
	}
	if errs := validation.IsDNS1123Subdomain(v.ref.name); len(errs) > 0 {
		v.refuse("metadata.name", fmt.Sprintf("%q is no name of an object", v.ref.name))
	}
	if errs := validation.IsDNS1123Label(v.ref.namespace); len(errs) > 0 {
		v.refuse("metadata.namespace", fmt.Sprintf("%q is no name of a namespace", v.ref.namespace))
	}
	for _, e := range errs {
		v.refuse(e.Field, strings.TrimPrefix(e.Message, fmt.Sprintf("field %q ", e.Field)))
	}
	if len(v.refused) > 0 {
		c.refused(v)
		return nil
	}
	return v
}

// add adds a conversion, or what it refuses.
func (c *converter) add(v *conversion) {
	if len(v.refused) > 0 {
		c.refused(v)
		return
	}
	if v.components == nil {
		c.dissolved = append(c.dissolved, v)
		return
	}
	v.spec.Adopt = appsv1.AdoptAlways
	c.all = append(c.all, v)
}

// refused lists why an object is not converted. The object that renders it stays, too.
func (c *converter) refused(v *conversion) {
	c.result.Refused = append(c.result.Refused, v.refused...)
	if parent := v.object.parent; parent != nil && !parent.kept && len(parent.refused) == 0 {
		parent.refuse("spec.path", fmt.Sprintf("it renders %s, which is not converted", v.ref))
		c.refused(parent)
	}
}

// dropRefused removes conversions of objects that turned out to stay, and of what they render.
func (c *converter) dropRefused() {
	stays := func(v *conversion) bool {
		return len(v.refused) > 0 || v.object.parent != nil && len(v.object.parent.refused) > 0
	}
	for _, v := range slices.Concat(c.all, c.dissolved) {
		if stays(v) && len(v.refused) == 0 {
			c.staysWithParent(v)
		}
	}
	c.all = slices.DeleteFunc(c.all, stays)
	c.dissolved = slices.DeleteFunc(c.dissolved, stays)
}

// findSources finds out which sources are the repository.
func (c *converter) findSources() error {
	c.sources = map[string]bool{}
	for _, s := range c.opts.Sources {
		c.sources[s] = true
	}
	if len(c.sources) > 0 {
		return nil
	}
	flux, argo := map[string]bool{}, map[string]bool{}
	for i := range c.opts.Objects {
		o := &c.opts.Objects[i]
		if o.is(kustomizeGroup, "Kustomization") {
			var k kustomization
			_, _ = o.decode(&k)
			flux[k.Spec.SourceRef.within(k.Metadata.Namespace).String()] = true
		}
		if url := repoURLOf(o); o.is(argoGroup, "Application") && url != "" {
			argo[url] = true
		}
	}
	for source := range flux { // its parent sets the namespace
		kind, name, _ := strings.Cut(source, " ")
		for other := range flux {
			if otherKind, rest, _ := strings.Cut(other, " "); !strings.Contains(name, "/") && kind == otherKind &&
				strings.HasSuffix(rest, "/"+name) {
				delete(flux, source)
			}
		}
	}
	for _, found := range []map[string]bool{flux, argo} {
		if len(found) > 1 {
			return fmt.Errorf("the objects have several sources: %s; name those that are this repository with --source",
				strings.Join(slices.Sorted(maps.Keys(found)), ", "))
		}
		maps.Copy(c.sources, found)
	}
	return nil
}

// notThisRepository follows the name of a source.
const notThisRepository = " is not this repository; convert it in a checkout of its own repository, or name it with " +
	"--source"

// isParent reports whether an object syncs objects that are converted. It stays, and syncs the
// installs from then on.
func (c *converter) isParent(v *conversion, objects []map[string]any) bool {
	for _, value := range objects {
		o := Object{File: v.object.File, Line: v.object.Line, Value: value, parent: v}
		if slices.Contains([]string{kustomizeGroup, helmGroup, sourceGroup, argoGroup, ""}, o.group()) {
			c.rendered = append(c.rendered, o)
		}
	}
	for _, value := range objects {
		o := Object{Value: value}
		if o.is(kustomizeGroup, "Kustomization") || o.is(argoGroup, "Application") ||
			o.is(argoGroup, "ApplicationSet") {
			v.kept = true
			c.result.Kept = append(c.result.Kept, v.problem("", "it stays, and syncs the installs").String())
			return true
		}
	}
	return false
}

// emitInstalls writes the installs, with their dependencies on each other.
func (c *converter) emitInstalls() error {
	c.orderWaves()
	for _, v := range c.all {
		v.spec.DependsOn = c.dependencies(v)
		namespace := v.namespace
		if v.object.ref().namespace == "" && v.ref.namespace == v.namespace {
			namespace = "" // what syncs the object sets it, for the install, too
		}
		data, err := installYAML(namespace, v.install, &v.spec)
		if err != nil {
			return err
		}
		c.result.Files[v.file] = data
		if err := c.emitSource(v); err != nil {
			return err
		}
		c.result.Notes = append(c.result.Notes, v.notes...)
		c.result.Converted = append(c.result.Converted, Converted{
			Object: v.ref.String(), File: v.object.File, Stack: v.stack, Install: v.namespace + "/" + v.install,
			StackFile: path.Join(stacksFolder, v.stack, stacks.FileName), InstallFile: v.file, Objects: v.objects,
			Former: v.ref.kind, Rendered: !v.object.inFile(), Account: v.spec.ServiceAccountName != "",
			namespace: v.ref.namespace, name: v.ref.name,
			Release: v.release.Name, ReleaseNamespace: v.release.Namespace,
		})
	}
	for _, v := range c.dissolved {
		c.result.Converted = append(c.result.Converted, Converted{Object: v.ref.String(), File: v.object.File,
			Former: v.ref.kind, namespace: v.ref.namespace, name: v.ref.name})
	}
	used := map[string]bool{}
	for _, v := range c.all {
		used[path.Join(stacksFolder, v.stack, stacks.FileName)] = true
	}
	maps.DeleteFunc(c.result.Files, func(name string, _ []byte) bool {
		return path.Base(name) == stacks.FileName && !used[name]
	})
	return nil
}

// emitSource writes the KsctlSource of an install, once for each folder and namespace.
func (c *converter) emitSource(v *conversion) error {
	if v.source == nil {
		return nil
	}
	data, err := shortYAML(manifestFile{APIVersion: stacks.APIVersion, Kind: appsv1.KsctlSourceKind,
		Metadata: manifestObject{Name: v.source.name, Namespace: v.source.namespace}, Spec: v.source.spec}, "spec")
	if err != nil {
		return err
	}
	for more := ""; ; more += "-new" {
		file := path.Join(path.Dir(v.file), v.source.namespace+more+"-source.yaml")
		switch have := c.result.Files[file]; {
		case have != nil && !bytes.Equal(have, data):
			v.note("spec.source.targetRevision", "it is not that of the other Applications of this namespace; "+
				"set the same in all")
			return nil
		case have != nil || sameDocument(filepath.Join(c.opts.Root, file), data):
			return nil
		case !fileExists(filepath.Join(c.opts.Root, file)):
			c.result.Files[file] = data
			return nil
		}
	}
}

// sameDocument reports whether a file has one object, and the same as data.
func sameDocument(file string, data []byte) bool {
	have, err := readDocuments(file)
	var want map[string]any
	return err == nil && yaml.Unmarshal(data, &want) == nil && len(have) == 1 && reflect.DeepEqual(have[0], want)
}

// dependencies returns the installs of the objects that come before, in the same cluster. What is
// not converted is named as it is.
func (c *converter) dependencies(v *conversion) (out []appsv1.Dependency) {
	for _, d := range v.after {
		dep := appsv1.Dependency{APIVersion: d.apiVersion, Kind: d.kind, Name: d.name, ReadyExpr: d.readyExpr}
		if d.namespace != v.namespace {
			dep.Namespace = d.namespace
		}
		found, same := false, c.converted(d.reference)
		for _, other := range c.all {
			parent := other.object.parent
			renderedBy := parent != nil && !parent.kept && parent.ref == d.reference && v.object.inFile()
			elsewhere := other.cluster != v.cluster && (len(same) != 1 || same[0] != other)
			if other == v || elsewhere || other.ref != d.reference && !renderedBy {
				continue
			}
			found = true
			own := appsv1.Dependency{Name: other.install}
			if other.namespace != v.namespace {
				own.Namespace = other.namespace
			}
			out = append(out, own)
		}
		if !found && d.apiVersion != "" {
			out = append(out, dep)
		}
	}
	return out
}

// converted returns the conversions of objects with this reference, in all clusters.
func (c *converter) converted(ref reference) (out []*conversion) {
	for _, v := range c.all {
		if v.ref == ref {
			out = append(out, v)
		}
	}
	return out
}

func pathReason(err error) string {
	if errors.Is(err, fs.ErrNotExist) {
		return "it is not in the repository"
	}
	return err.Error()
}
