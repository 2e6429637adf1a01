package convert

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// nameAll names the stacks and the files. Equal stacks are one.
func (c *converter) nameAll() error {
	byName := map[string][]*conversion{}
	for _, v := range c.all {
		byName[v.base()] = append(byName[v.base()], v)
	}
	used := map[string]string{} // content by name
	for _, name := range slices.Sorted(maps.Keys(byName)) {
		group := byName[name]
		bodies := make([]string, len(group))
		for i, v := range group {
			data, err := v.stackYAML(name)
			if err != nil {
				return err
			}
			bodies[i] = string(data)
		}
		same := !slices.ContainsFunc(bodies, func(b string) bool { return b != bodies[0] })
		for i, v := range group {
			v.stack = name
			if !same {
				v.stack = label(name + "-" + cmp.Or(path.Base(v.cluster), v.ref.namespace))
			}
			base := v.stack
			for n := 2; used[v.stack] != "" && used[v.stack] != bodies[i] || c.exists(v.stack); n++ {
				v.stack = fmt.Sprintf("%s-%d", base, n)
			}
			used[v.stack] = bodies[i]
		}
	}
	c.nameInstalls()
	return nil
}

// nameInstalls names the installs and their files. Objects of one name become installs of several
// names where they are in one namespace.
func (c *converter) nameInstalls() {
	files, installs := map[string]bool{}, map[string]bool{}
	for _, v := range c.all {
		dir := path.Dir(v.file)
		switch {
		case v.file != "" && !path.IsAbs(v.file) && !strings.HasPrefix(v.file, "../"):
		case v.cluster == "" || v.object.parent == nil:
			dir = path.Join(installsFolder, v.namespace)
		default:
			dir = path.Join(installsFolder, v.cluster)
		}
		v.install = v.ref.name
		for n := 2; installs[v.cluster+" "+v.namespace+"/"+v.install]; n++ {
			v.install = fmt.Sprintf("%s-%d", v.ref.name, n)
		}
		installs[v.cluster+" "+v.namespace+"/"+v.install] = true
		v.file = path.Join(dir, v.install+"-install.yaml")
		for n := ""; files[v.file] || fileExists(filepath.Join(c.work, v.file)); n += "-new" {
			v.file = path.Join(dir, v.namespace+"-"+v.install+n+"-install.yaml")
		}
		files[v.file] = true
	}
}

// exists reports whether the repository has a folder for a stack of this name.
func (c *converter) exists(stack string) bool {
	return fileExists(filepath.Join(c.opts.Root, stacksFolder, stack))
}

func fileExists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}
