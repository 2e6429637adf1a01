package kind_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"sigs.k8s.io/yaml"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/framework"
	"github.com/ksctl/gitops/e2e/harness"
)

// gadget is the folder of a stack whose kind has fields of all types.
const gadget = "internal/kindclient/testdata/gadget"

func read(path string) string {
	GinkgoHelper()
	content, err := os.ReadFile(harness.RepoPath(path))
	Expect(err).NotTo(HaveOccurred())
	return string(content)
}

// shell runs a script with kubectl and the plugin.
func shell(ctx context.Context, dir, script string) string {
	GinkgoHelper()
	out, err := h.Shell(ctx, dir, script)
	Expect(err).NotTo(HaveOccurred())
	return out
}

// newModule creates a Go module in a folder, with the requirements of examples/library.
func newModule(dir string) {
	GinkgoHelper()
	root, err := filepath.Abs(harness.RepoPath("."))
	Expect(err).NotTo(HaveOccurred())
	mod := strings.Replace(read("examples/library/go.mod"), "=> ../..", "=> "+root, 1)
	Expect(mod).To(ContainSubstring("=> " + root + "\n"))
	Expect(harness.WriteFiles(dir, map[string]string{"go.mod": mod, "go.sum": read("examples/library/go.sum"),
		"main.go": read("e2e/kind/testdata/client/main.go")})).To(Succeed())
}

var _ = Describe("The kind of a stack, described by kubectl ksctl kind", func() {
	It("is the kind that is served, and has clients in Go", func(ctx SpecContext) {
		platform, tenant := framework.Namespace(ctx, h, "platform"), framework.Namespace(ctx, h, "tenant")
		Expect(h.PublishSource(ctx, platform, "fleet", "main@sha1:1", artifacts.Files(map[string]string{
			"stacks/gadget/stack.yaml": read(gadget + "/stack.yaml"),
			"stacks/gadget/main.yaml":  read(gadget + "/main.yaml")}))).To(Succeed())
		k := newKind(ctx, platform, "Gadget", func(k *appsv1.KsctlKind) { k.Spec.Stack = "gadget" })
		kindReady(ctx, k, "main@sha1:1")
		stack, err := filepath.Abs(harness.RepoPath(gadget))
		Expect(err).NotTo(HaveOccurred())

		By("comparing the CustomResourceDefinition")
		var printed, served apiextensionsv1.CustomResourceDefinition
		Expect(yaml.Unmarshal([]byte(shell(ctx, stack, "kubectl ksctl kind crd .")), &printed)).To(Succeed())
		Expect(yaml.Unmarshal([]byte(shell(ctx, stack, "kubectl get crd gadgetry.shops.example.com -o yaml")),
			&served)).To(Succeed())
		served.Spec.Conversion = nil // a default
		Expect(served.Spec).To(BeComparableTo(printed.Spec))

		By("comparing the OpenAPI schemas")
		ours := schemas(shell(ctx, stack, "kubectl ksctl kind openapi ."))
		theirs := schemas(shell(ctx, stack, "kubectl get --raw /openapi/v3/apis/shops.example.com/v1"))
		for _, name := range []string{"com.example.shops.v1.Gadget", "com.example.shops.v1.GadgetList",
			"io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"} {
			Expect(theirs).To(HaveKey(name))
			Expect(ours).To(HaveKey(name))
			Expect(ours[name].Kinds).To(Equal(theirs[name].Kinds))
			for field, schema := range theirs[name].Properties {
				Expect(ours[name].Properties).To(HaveKey(field), name)
				if field == "spec" || field == "status" {
					Expect(ours[name].Properties[field]).To(BeComparableTo(schema), field)
				}
			}
		}

		By("generating, compiling and running a client")
		dir := GinkgoT().TempDir()
		newModule(dir)
		out := shell(ctx, dir, "kubectl ksctl kind client "+stack+" gadgets")
		Expect(out).To(ContainSubstring("go generate example.com/library/gadgets\n"))
		shell(ctx, dir, "go generate example.com/library/gadgets && go build -o client .")
		Expect(shell(ctx, dir, "./client "+tenant)).To(HaveSuffix("cached: hi, in the older version: hi\n"))
	}, SpecTimeout(15*time.Minute))
})

// schema is an OpenAPI schema of a kind.
type schema struct {
	Properties map[string]any      `json:"properties"`
	Kinds      []map[string]string `json:"x-kubernetes-group-version-kind"`
}

// schemas returns the schemas of an OpenAPI document.
func schemas(document string) map[string]schema {
	GinkgoHelper()
	var out struct {
		Components struct {
			Schemas map[string]schema `json:"schemas"`
		} `json:"components"`
	}
	Expect(yaml.Unmarshal([]byte(document), &out)).To(Succeed())
	return out.Components.Schemas
}
