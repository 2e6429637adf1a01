package stacks

import (
	"cmp"
	"errors"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/ksctl/gitops/stacks/internal/document"
	"github.com/ksctl/gitops/stacks/internal/expr"
	"github.com/ksctl/gitops/stacks/internal/helm"
	"github.com/ksctl/gitops/stacks/internal/source"
	"github.com/ksctl/gitops/stacks/problem"
	"github.com/ksctl/gitops/stacks/sops"
)

// maxStackFile is the maximum size of a stack file in bytes.
const maxStackFile = 1 << 20

// Load reads and validates the stack file of a stack: <dir>/stack.yaml or
// <dir>/<stack>/stack.yaml below root. It returns all problems at once, as Errors. It returns an
// *EncryptedError instead if encrypted files may be the cause.
func Load(root, dir, stack string) (*Definition, error) {
	tree, err := source.Open(root)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	def, err := loadFrom(tree, root, dir, stack, helm.Loader{})
	return def, preferEncryptedError(err, tree, stack)
}

// FindFile returns the path of the stack file that Load would read, below root.
func FindFile(root, dir, stack string) (string, error) {
	tree, err := source.Open(root)
	if err != nil {
		return "", err
	}
	defer tree.Close()
	return findFile(tree, dir, stack)
}

func loadFrom(tree *source.Tree, root, dir, stack string, loader helm.Loader) (*Definition, error) {
	file, err := findFile(tree, dir, stack)
	if err != nil {
		return nil, err
	}
	def, err := loadFile(tree, root, file, loader)
	if err != nil {
		return nil, err
	}
	if err := def.checkName(stack); err != nil {
		return nil, err
	}
	return def, nil
}

// checkName returns an error if the stack in the file has another name.
func (d *Definition) checkName(stack string) error {
	if d.Metadata.Name == stack {
		return nil
	}
	return d.fieldAt("metadata.name").errorf("the stack in this file is %q, not %q", d.Metadata.Name, stack)
}

func findFile(tree *source.Tree, dir, stack string) (string, error) {
	if !isLabel(stack) {
		return "", &Error{Stack: stack, Field: "spec.stack", Message: "the name of a stack must be a DNS label"}
	}
	base, err := source.Clean(".", dir)
	if err != nil {
		return "", &Error{Stack: stack, Field: "spec.path", Message: err.Error(), Err: err}
	}
	own, named := path.Join(base, FileName), path.Join(base, stack, FileName)
	for _, file := range []string{named, own} {
		if _, err := tree.Stat(file); err == nil {
			return file, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			// The file exists but cannot be read: a symbolic link that leaves the source.
			_, err := tree.Read(file, maxStackFile)
			return "", err
		}
	}
	return "", &Error{
		Stack: stack, Field: "spec.path", Suggestion: problem.Nearest(stack, stackNames(tree, base)),
		Message: "there is neither " + own + " nor " + named + " in the source",
	}
}

// LoadFile reads and validates the stack file at a path below root.
func LoadFile(root, file string) (*Definition, error) {
	tree, err := source.Open(root)
	if err != nil {
		return nil, err
	}
	defer tree.Close()
	clean, err := source.Clean(".", file)
	if err != nil {
		return nil, problem.Errorf(file, 0, "%w", err)
	}
	def, err := loadFile(tree, root, clean, helm.Loader{})
	return def, preferEncryptedError(err, tree, "")
}

func loadFile(tree *source.Tree, root, file string, loader helm.Loader) (*Definition, error) {
	def, err := readDefinition(tree, file)
	if err != nil {
		return nil, err
	}
	def.root, def.loader = root, loader
	if errs := validate(def, tree); len(errs) > 0 {
		return nil, errs.Err()
	}
	return def, nil
}

// readDefinition reads a stack file. It does not validate the definition.
func readDefinition(tree *source.Tree, file string) (*Definition, error) {
	data, err := tree.ReadRaw(file, maxStackFile)
	if err != nil {
		return nil, err
	}
	if _, encrypted := sops.Detect(file, data); encrypted {
		return nil, problem.Errorf(file, 0,
			"a stack file must not be encrypted: only files that it references are decrypted; move the secret values "+
				"into a separate file")
	}
	return parseDefinition(file, data)
}

// parseDefinition decodes a stack file. It does not validate the definition.
func parseDefinition(file string, data []byte) (*Definition, error) {
	node, err := document.ParseSingle(file, data)
	if err != nil {
		return nil, err
	}
	def := &Definition{file: file, dir: path.Dir(file), charts: map[string]*helm.Chart{},
		expressions: map[string]*expr.Expression{}}
	lines, errs := document.Decode(file, node, def)
	def.lines = lines
	for _, e := range errs {
		full := e.Field
		e.Component, e.Field = def.splitComponentPath(full)
		// Replace the path at the start of the message with the path within the component.
		if rest, ok := strings.CutPrefix(e.Message, "field "+strconv.Quote(full)); ok && e.Field != "" {
			e.Message = "field " + strconv.Quote(e.Field) + rest
		}
	}
	return def, errs.Err()
}

var componentPath = regexp.MustCompile(`^spec\.components\[(\d+)\]\.?(.*)$`)

// splitComponentPath splits a field path into the name of the component and the path within it.
// The component is empty for a field outside of spec.components.
func (d *Definition) splitComponentPath(full string) (component, field string) {
	m := componentPath.FindStringSubmatch(full)
	if m == nil {
		return "", full
	}
	i, err := strconv.Atoi(m[1])
	if err != nil || i >= len(d.Spec.Components) {
		return "", full
	}
	return cmp.Or(d.Spec.Components[i].Name, "#"+strconv.Itoa(i+1)), m[2]
}

// stackNames returns the names of the folders in base that have a stack file.
func stackNames(tree *source.Tree, base string) []string {
	entries, err := tree.ReadDir(base)
	if err != nil {
		return nil
	}
	var names []string
	for _, entry := range entries {
		if tree.IsFile(path.Join(base, entry.Name(), FileName)) {
			names = append(names, entry.Name())
		}
	}
	return names
}
