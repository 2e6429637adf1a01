package convert

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"path/filepath"

	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/stacks"
	"github.com/ksctl/gitops/stacks/generated"
	"github.com/ksctl/gitops/stacks/problem"
)

// proveAll renders each stack, and compares its objects with those of the former tool. A stack that
// can't be rendered is not converted.
func (c *converter) proveAll() error {
	var differences DifferenceError
	for _, v := range c.all {
		found, err := c.prove(v)
		for _, e := range problem.Flatten(err) {
			v.refuse("", "it can't be rendered as a stack: "+oneLine(e.Error(), c.work))
		}
		if len(v.refused) > 0 {
			c.refused(v)
			continue
		}
		differences = append(differences, found...)
	}
	c.dropRefused()
	if len(differences) > 0 {
		return differences
	}
	return c.ctx.Err()
}

func (c *converter) prove(v *conversion) ([]Difference, error) {
	data, err := v.stackYAML(v.stack)
	if err != nil {
		return nil, err
	}
	file := path.Join(stacksFolder, v.stack, stacks.FileName)
	if err := writeFile(filepath.Join(c.work, file), data); err != nil {
		return nil, err
	}
	in, req, err := c.request(v)
	if err != nil {
		return nil, err
	}
	if c.opts.FetchCharts != nil {
		if err := c.opts.FetchCharts(c.ctx, in, &req); err != nil {
			return nil, err
		}
	}
	if err := v.setCharts(req.Charts, c.work); err != nil {
		return nil, err
	}
	result, err := stacks.Render(c.ctx, req)
	if encrypted, ok := errors.AsType[*stacks.EncryptedError](err); ok {
		return nil, fmt.Errorf("%s encrypted with SOPS, so that the objects can't be compared; move it as "+
			"docs/moving.md describes", encrypted.Subject())
	}
	if err != nil {
		return nil, err
	}
	now, err := renderedObjects(&result)
	if err != nil {
		return nil, err
	}
	namespace := cmp.Or(v.formerNamespace, v.components[0].Namespace.Text, v.spec.TargetNamespace, v.namespace)
	former, err := v.formerObjects(namespace)
	again := former
	if err == nil && len(v.chartRoots) > 0 {
		again, err = v.formerObjects(namespace)
	}
	if err != nil {
		return nil, err
	}
	v.objects = len(now)
	c.result.Files[file] = data
	return compareObjects(v.ref.String(), former, again, now), nil
}

// formerObjects renders the objects as the former tool does.
func (v *conversion) formerObjects(namespace string) (objectSet, error) {
	objects, err := v.render()
	if err != nil {
		return nil, err
	}
	return formerObjects(objects, namespace)
}

// request returns the install, and the request that renders it.
func (c *converter) request(v *conversion) (*appsv1.KsctlInstall, stacks.Request, error) {
	v.spec.Path, v.spec.Stack = "./"+stacksFolder, v.stack
	var err error
	if v.spec.Components, err = v.choices(); err != nil {
		return nil, stacks.Request{}, err
	}
	// What is rendered is the install as the API server reads it from the file.
	data, err := installYAML(v.namespace, v.install, &v.spec)
	if err != nil {
		return nil, stacks.Request{}, err
	}
	in := &appsv1.KsctlInstall{}
	if err := yaml.UnmarshalStrict(data, in); err != nil {
		return nil, stacks.Request{}, err
	}
	var inputs []stacks.ValuesInput
	for _, ref := range in.Spec.ValuesFrom {
		if data, ok := c.dataOf(v, reference{ref.Kind, v.namespace, ref.Name}, stacks.ValuesKey(ref)); ok {
			inputs = append(inputs, stacks.ValuesInput{Component: ref.Component, Source: stacks.ValuesSource(ref),
				Data: data, Public: ref.Kind != "Secret", TargetPath: ref.TargetPath})
		}
	}
	choices, err := stacks.ChoicesFromInstall(in, inputs)
	for _, ref := range in.Spec.ParametersFrom {
		data := c.allDataOf(v, reference{ref.Kind, v.namespace, ref.Name})
		if input, ok := stacks.NewParametersInput(ref, data); ok {
			choices.ParametersFrom = append(choices.ParametersFrom, input)
		}
	}
	return in, stacks.Request{Root: c.work, Path: in.Spec.Path, Stack: v.stack, Choices: choices,
		Install:      stacks.Identity{Namespace: in.Namespace, Name: in.Name},
		Capabilities: c.opts.Capabilities, Generate: generated.Options{Policy: generated.Placeholders}}, err
}
