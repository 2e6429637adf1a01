package rest_test

import (
	"encoding/json"
	"net/http"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/ksctl/gitops/e2e/cluster"
	"github.com/ksctl/gitops/e2e/harness"
)

var _ = Describe("The endpoint without a repository", func() {
	It("creates, reads, changes and deletes an object with the token of the caller", func(ctx SpecContext) {
		mark, path := auditMark(ctx), shopPath("passing")
		created := passing.send(ctx, http.StatusCreated, "PUT", path+"?wait=4m", shopJSON("hi"))
		Expect(created.header.Get("Ksctl-Ready")).To(HavePrefix("True "))
		read := passing.send(ctx, http.StatusOK, "GET", path, "")
		Expect(read.header.Get("ETag")).To(Equal(created.header.Get("ETag")))
		patched := passing.send(ctx, http.StatusOK, "PATCH", path+"?wait=4m", `{"spec": {"host": "hello"}}`,
			"If-Match", read.header.Get("ETag"))
		refused := passing.send(ctx, http.StatusPreconditionFailed, "PUT", path, shopJSON("lost"), "If-Match",
			read.header.Get("ETag"))
		Expect(refused.status().Message).To(ContainSubstring("the object has changed"))
		passing.send(ctx, http.StatusOK, "PUT", path, shopJSON("bye"), "If-Match", patched.header.Get("ETag"))
		passing.send(ctx, http.StatusOK, "DELETE", path+"?wait=4m", "")
		Expect(liveShop(ctx, "passing")).To(BeNil())

		requests := requestsSince(ctx, mark)
		Expect(requests.Where(cluster.Write)).NotTo(BeEmpty())
		Expect(requests.Without(cluster.ByUser(user("editor")))).To(BeEmpty(), "requests have the caller's identity")
	})

	It("passes refusals of the API server on", func(ctx SpecContext) {
		path, mark := shopPath("refused"), auditMark(ctx)
		for _, method := range []string{"GET", "PUT", "PATCH", "DELETE"} {
			a := passing.sendAs(ctx, "stranger", http.StatusForbidden, method, path, shopJSON("hi"))
			Expect(a.status().Message).To(ContainSubstring(user("stranger")))
			passing.sendAs(ctx, "invalid", http.StatusUnauthorized, method, path, shopJSON("hi"))
			passing.sendAs(ctx, "", http.StatusUnauthorized, method, path, shopJSON("hi"))
		}
		passing.sendAs(ctx, "viewer", http.StatusForbidden, "PUT", path, shopJSON("hi"))
		invalid := passing.send(ctx, http.StatusUnprocessableEntity, "PUT", path,
			`{"apiVersion": "shops.example.com/v1alpha1", "kind": "Shop", "spec": {}}`)
		Expect(invalid.status().Message).To(ContainSubstring("spec.host: Required value"))
		unknown := passing.send(ctx, http.StatusBadRequest, "PUT", path,
			`{"apiVersion": "shops.example.com/v1alpha1", "kind": "Shop", "spec": {"host": "hi", "x": 1}}`)
		Expect(unknown.status().Message).To(ContainSubstring(`unknown field "spec.x"`))
		other := passing.send(ctx, http.StatusNotFound, "GET", "/v1/configmaps./"+team+"/x", "")
		Expect(other.status().Message).To(ContainSubstring("ksctlinstalls.apps.ksctl.com, shops.shops.example.com"))
		Expect(liveShop(ctx, "refused")).To(BeNil())
		Expect(requestsSince(ctx, mark).Where(cluster.ByUser(cluster.ServiceAccountUser(harness.SystemNamespace,
			harness.ServiceAccount)))).To(BeEmpty())
	})

	It("waits for an install, and answers with its state when the time is over", func(ctx SpecContext) {
		in := harness.NewInstall(team, "web")
		in.APIVersion, in.Kind = "apps.ksctl.com/v1", "KsctlInstall"
		content, err := json.Marshal(map[string]any{"apiVersion": in.APIVersion, "kind": in.Kind, "spec": in.Spec})
		Expect(err).NotTo(HaveOccurred())
		path := "/v1/ksctlinstalls.apps.ksctl.com/" + team + "/web"
		a := passing.send(ctx, http.StatusAccepted, "PUT", path+"?wait=3s", string(content))
		Expect(a.header.Get("Ksctl-Ready")).NotTo(BeEmpty()) // it has no source yet
		Expect(h.PublishSource(ctx, team, "src", "main@sha1:1", harness.SourceTree(harness.OneComponent,
			map[string]string{"main/config.yaml": "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: web}\n"}))).
			To(Succeed())
		passing.send(ctx, http.StatusOK, "PATCH", path+"?wait=4m", `{"metadata": {"labels": {"a": "b"}}}`)
		passing.send(ctx, http.StatusOK, "DELETE", path+"?wait=4m", "")
		Expect(apierrors.IsNotFound(plane.Client().Get(ctx, client.ObjectKeyFromObject(in), in))).To(BeTrue())
	})

	It("keeps a change that another client makes at the same time", func(ctx SpecContext) {
		path := shopPath("shared")
		passing.send(ctx, http.StatusCreated, "PUT", path, shopJSON("hi"))
		read := passing.send(ctx, http.StatusOK, "GET", path, "")
		live := read.object()
		Expect(plane.Client().Patch(ctx, live, client.RawPatch(types.MergePatchType,
			[]byte(`{"metadata": {"labels": {"by": "another"}}}`)))).To(Succeed())
		passing.send(ctx, http.StatusPreconditionFailed, "PUT", path, shopJSON("lost"), "If-Match",
			read.header.Get("ETag"))
		passing.send(ctx, http.StatusOK, "PATCH", path, `{"spec": {"host": "hello"}}`)
		Expect(liveShop(ctx, "shared").GetLabels()).To(HaveKeyWithValue("by", "another"))
		passing.send(ctx, http.StatusOK, "DELETE", path, "")
	})
})
