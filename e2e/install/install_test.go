package install_test

import (
	"fmt"
	"io/fs"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/ksctl/gitops/e2e/harness"
)

// tree returns a source with one stack "app", from the rest of its stack.yaml and its files.
func tree(stack string, files map[string]string) fs.FS {
	return harness.SourceTree(stack, files)
}

const oneComponent = harness.OneComponent

func configMap(name, value string) string {
	return fmt.Sprintf("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: %s}\ndata: {value: %q}\n", name, value)
}

var _ = Describe("An install", func() {
	It("creates, updates, prunes and removes objects", Label("smoke"), func(ctx SpecContext) {
		ns := namespaceFor(ctx)
		publish(ctx, ns, "src", "main@sha1:1", tree(oneComponent, map[string]string{
			"main/a.yaml": configMap("a", "1"), "main/b.yaml": configMap("b", "1")}))
		in := newInstall(ctx, ns, "i")
		atRevision(ctx, in, "main@sha1:1")
		Expect(in.Status.StackVersion).To(Equal("1.0.0"))
		Expect(in.Status.Inventory.Entries).To(HaveLen(2))

		publish(ctx, ns, "src", "main@sha1:2",
			tree(oneComponent, map[string]string{"main/a.yaml": configMap("a", "2")}))
		atRevision(ctx, in, "main@sha1:2")
		a := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "a"}}
		Expect(get(ctx, a)).To(Succeed())
		Expect(a.Data).To(HaveKeyWithValue("value", "2"))
		b := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "b"}}
		Expect(get(ctx, b)).To(MatchError(ContainSubstring("not found")))

		deleteAndWait(ctx, in)
		Expect(get(ctx, a)).To(MatchError(ContainSubstring("not found")))
	})
})
