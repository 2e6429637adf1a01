package rest_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ksctl/gitops/e2e/cluster"
)

// kustomization lists the files of the objects.
const kustomization = `apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: # by hand
- %s
`

var _ = Describe("The endpoint with a repository", func() {
	// Each spec has its own objects. The specs share the branch.

	It("commits what the API server accepts, in the name of the caller", func(ctx SpecContext) {
		push(ctx, "a shop", map[string]string{"objects/corner.yaml": shopYAML("corner", "hi")})
		mark := auditMark(ctx)
		read := committing.send(ctx, http.StatusOK, "GET", shopPath("corner"), "")
		Expect(read.header.Get("Ksctl-File")).To(Equal("objects/corner.yaml"))
		patched := committing.send(ctx, http.StatusOK, "PATCH", shopPath("corner")+"?message=Greet%20the%20customers",
			`{"spec": {"host": "hello"}}`, "If-Match", read.header.Get("ETag"))
		Expect(patched.header.Get("Ksctl-Commit")).To(Equal(head(ctx)))
		Expect(file(ctx, "objects/corner.yaml")).To(Equal(shopYAML("corner", "hello")), "comments are kept")
		Expect(git(ctx, "log", "-1", "--format=%an|%ae|%B", "main")).To(Equal(fmt.Sprintf(
			"ServiceAccount %[1]s/editor|editor@%[1]s.serviceaccounts.cluster.local|Greet the customers\n\n"+
				"Requested-by: system:serviceaccount:%[1]s:editor", team)))
		refused := committing.send(ctx, http.StatusPreconditionFailed, "PUT", shopPath("corner"), shopJSON("lost"),
			"If-Match", read.header.Get("ETag"))
		Expect(refused.status().Message).NotTo(BeEmpty())

		By("creating and deleting an object")
		before := head(ctx)
		created := committing.send(ctx, http.StatusCreated, "PUT", shopPath("new"), shopJSON("hi"))
		Expect(created.header.Get("Ksctl-File")).To(Equal("objects/" + team + "-new.yaml"))
		Expect(file(ctx, "objects/"+team+"-new.yaml")).To(ContainSubstring("host: hi"))
		Expect(git(ctx, "log", "-1", "--format=%s", "main")).To(Equal("Create Shop." + group + " " + team + "/new"))
		committing.send(ctx, http.StatusOK, "DELETE", shopPath("new"), "", "If-Match", created.header.Get("ETag"))
		Expect(git(ctx, "ls-tree", "-r", "--name-only", "main")).NotTo(ContainSubstring("new.yaml"))
		Expect(git(ctx, "diff", "--stat", before, "main")).To(BeEmpty())

		By("asking the API server with the token of the caller only")
		requests := requestsSince(ctx, mark)
		Expect(requests.Without(cluster.ByUser(user("editor")))).To(BeEmpty())
		Expect(requests.Where(cluster.Resource("shops"), cluster.Write).Without(cluster.DryRun)).To(BeEmpty())
		Expect(requests.Where(cluster.Resource("shops"), cluster.Write)).NotTo(BeEmpty())
		Expect(liveShop(ctx, "corner")).To(BeNil(), "only a source controller applies commits")
	})

	It("answers when the object has the committed fields and is Ready", func(ctx SpecContext) {
		path := shopPath("waiting")
		accepted := committing.send(ctx, http.StatusAccepted, "PUT", path+"?wait=1s", shopJSON("hi"))
		Expect(accepted.header.Get("Ksctl-Ready")).To(Equal("the object is not in the cluster yet"))
		name := "objects/" + team + "-waiting.yaml"
		apply(ctx, name)
		change := func(method, body string, code int) (applied func()) {
			before, done := head(ctx), make(chan struct{})
			go func() {
				defer GinkgoRecover()
				defer close(done)
				committing.send(ctx, code, method, path+"?wait=4m", body)
			}()
			Eventually(ctx, func() string { return head(ctx) }, soon).ShouldNot(Equal(before), "the commit is pushed")
			Consistently(ctx, done, 2*time.Second).ShouldNot(BeClosed(), "nothing has applied the commit yet")
			return func() {
				GinkgoHelper()
				Eventually(done, soon).Should(BeClosed(), "%s is answered", method)
			}
		}
		answered := change("PATCH", `{"spec": {"host": "hello"}}`, http.StatusOK)
		apply(ctx, name)
		answered()
		Expect(liveShop(ctx, "waiting").Object["spec"]).To(HaveKeyWithValue("host", "hello"))
		answered = change("DELETE", "", http.StatusOK)
		Expect(plane.Client().Delete(ctx, liveShop(ctx, "waiting"))).To(Succeed())
		answered()
	})

	It("commits a KsctlInstall", func(ctx SpecContext) {
		path := "/v1/ksctlinstalls.apps.ksctl.com/" + team + "/committed"
		committing.send(ctx, http.StatusCreated, "PUT", path, `{"apiVersion": "apps.ksctl.com/v1",
			"kind": "KsctlInstall", "spec": {"sourceRef": {"kind": "KsctlSource", "name": "src"}, "stack": "app"}}`)
		Expect(file(ctx, "objects/"+team+"-committed.yaml")).To(ContainSubstring("stack: app"))
		invalid := committing.send(ctx, http.StatusUnprocessableEntity, "PATCH", path, `{"spec": {"stack": "App"}}`)
		Expect(invalid.status().Message).To(ContainSubstring("spec.stack: Invalid value"))
		committing.send(ctx, http.StatusOK, "DELETE", path, "")
	})

	It("answers 50 concurrent writers once each, and loses nothing", func(ctx SpecContext) {
		const writers, others = 50, 5
		var documents []string
		for i := range writers / 2 {
			documents = append(documents, shopYAML(fmt.Sprint("together-", i), "hi"))
		}
		push(ctx, "many shops", map[string]string{"objects/together.yaml": strings.Join(documents, "---\n")})
		before := head(ctx)
		var running sync.WaitGroup
		commits := make([]string, writers)
		for i := range writers {
			running.Go(func() {
				defer GinkgoRecover()
				if i < writers/2 { // half of them change one file
					commits[i] = committing.send(ctx, http.StatusOK, "PATCH", shopPath(fmt.Sprint("together-", i)),
						fmt.Sprintf(`{"spec": {"host": "from-%d"}}`, i)).header.Get("Ksctl-Commit")
					return
				}
				commits[i] = committing.send(ctx, http.StatusCreated, "PUT", shopPath(fmt.Sprint("single-", i)),
					shopJSON(fmt.Sprint("from-", i))).header.Get("Ksctl-Commit")
			})
		}
		for i := range others { // another writer pushes in between
			push(ctx, "another writer", map[string]string{fmt.Sprintf("other/%d.txt", i): "x\n"})
		}
		running.Wait()

		log := strings.Split(git(ctx, "log", "--format=%H %P", before+"..main"), "\n")
		Expect(log).To(HaveLen(writers+others), "one commit for each change")
		seen := map[string]bool{}
		for i, line := range log {
			fields := strings.Fields(line)
			Expect(fields).To(HaveLen(2), "no commit is a merge")
			if i+1 < len(log) {
				Expect(log[i+1]).To(HavePrefix(fields[1]), "the history is linear")
			}
			seen[fields[0]] = true
		}
		together := file(ctx, "objects/together.yaml")
		for i := range writers {
			Expect(seen).To(HaveKey(commits[i]), "the commit of writer %d is in the history", i)
			delete(seen, commits[i])
			name, content := fmt.Sprint("together-", i), together
			if i >= writers/2 {
				name = fmt.Sprint("single-", i)
				content = file(ctx, fmt.Sprintf("objects/%s-%s.yaml", team, name))
			}
			Expect(content).To(ContainSubstring("name: %s\n", name))
			Expect(content).To(MatchRegexp(`host: from-%d( # for customers)?\n`, i))
		}
		Expect(seen).To(HaveLen(others))
		Expect(strings.Count(together, "# for customers")).To(Equal(writers / 2))
		for i := range others {
			Expect(file(ctx, fmt.Sprintf("other/%d.txt", i))).To(Equal("x\n"))
		}
	})

	It("makes a push that was lost to another writer again", func(ctx SpecContext) {
		push(ctx, "a shop", map[string]string{"objects/raced.yaml": shopYAML("raced", "hi")})
		before, mark := head(ctx), auditMark(ctx)
		a := committing.send(ctx, http.StatusOK, "PATCH", shopPath("raced")+"?message=lose%20the%20first%20push",
			`{"spec": {"host": "hello"}}`)
		Expect(a.header.Get("Ksctl-Commit")).To(Equal(head(ctx)))
		Expect(git(ctx, "log", "--format=%s", before+"..main")).To(Equal("lose the first push\nanother writer"))
		Expect(git(ctx, "rev-list", "--min-parents=2", before+"..main")).To(BeEmpty())
		Expect(requestsSince(ctx, mark).Where(cluster.DryRun)).To(HaveLen(1), "the object has not changed meanwhile")
	})

	It("commits nothing that the API server refuses", func(ctx SpecContext) {
		push(ctx, "a shop", map[string]string{"objects/strict.yaml": shopYAML("strict", "hi")})
		before := head(ctx)
		for body, message := range map[string]string{
			`{"spec": {"host": 5}}`:                 "spec.host: Invalid value",
			`{"spec": {"host": null}}`:              "spec.host: Required value",
			`{"metadata": {"labels": {"a": "b/"}}}`: "metadata.labels: Invalid value",
		} {
			a := committing.send(ctx, http.StatusUnprocessableEntity, "PATCH", shopPath("strict"), body)
			Expect(a.status().Message).To(ContainSubstring(message))
		}
		a := committing.send(ctx, http.StatusBadRequest, "PATCH", shopPath("strict"), `{"spec": {"x": 1}}`)
		Expect(a.status().Message).To(ContainSubstring(`unknown field "spec.x"`))
		for _, method := range []string{"PUT", "PATCH", "DELETE"} {
			for account, code := range map[string]int{"viewer": http.StatusForbidden, "stranger": http.StatusForbidden,
				"invalid": http.StatusUnauthorized, "": http.StatusUnauthorized} {
				refused := committing.sendAs(ctx, account, code, method, shopPath("strict"), shopJSON("x"))
				Expect(refused.status().Message).NotTo(BeEmpty())
			}
		}
		committing.sendAs(ctx, "viewer", http.StatusOK, "GET", shopPath("strict"), "")
		committing.sendAs(ctx, "stranger", http.StatusForbidden, "GET", shopPath("strict"), "")
		Expect(head(ctx)).To(Equal(before))
	})

	It("answers with the reason of a server that refuses the push", func(ctx SpecContext) {
		before := head(ctx)
		a := committing.send(ctx, http.StatusBadGateway, "PUT", shopPath("policy")+"?message=against%20the%20policy",
			shopJSON("hi"))
		Expect(a.status().Message).NotTo(ContainSubstring(gitPassword))
		Expect(a.status().Message).To(ContainSubstring("refuse"))
		Expect(head(ctx)).To(Equal(before))
	})

	It("answers with file and reason if it can't change the object", func(ctx SpecContext) {
		encrypted := shopYAML("encrypted", "ENC[AES256_GCM,data:x,iv:x,tag:x,type:str]") +
			"sops:\n  mac: ENC[AES256_GCM,data:x,iv:x,tag:x,type:str]\n  lastmodified: \"2026-01-01T00:00:00Z\"\n" +
			"  version: 3.9.0\n  age:\n  - recipient: age1x\n    enc: x\n"
		anchor := strings.Replace(shopYAML("anchor", "&a hi"), "spec:", "spec: # anchors", 1)
		overlaid := fmt.Sprintf(kustomization, "overlaid.yaml") + strings.ReplaceAll(overlay, "TEAM", team)
		namespaced := strings.Replace(shopYAML("namespaced", "hi"), "  namespace: "+team+"\n", "", 1)
		push(ctx, "files that can't be edited", map[string]string{
			"objects/encrypted.yaml": encrypted, "objects/anchor.yaml": anchor,
			"objects/twice.yaml":                    shopYAML("twice", "hi") + "---\n" + shopYAML("twice", "hello"),
			"objects/overlay/kustomization.yaml":    overlaid,
			"objects/overlay/overlaid.yaml":         shopYAML("overlaid", "hi"),
			"objects/namespaced/kustomization.yaml": fmt.Sprintf("namespace: %s\n"+kustomization, team, "shop.yaml"),
			"objects/namespaced/shop.yaml":          namespaced,
			"elsewhere/" + team + "-elsewhere.yaml": shopYAML("elsewhere", "hi"),
			"objects/several.yaml":                  shopYAML("first", "hi") + "---\n" + shopYAML("second", "hi"),
		})
		before := head(ctx)
		for name, where := range map[string]string{"encrypted": "objects/encrypted.yaml",
			"anchor": "objects/anchor.yaml",
			"twice":  "objects/twice.yaml", "overlaid": "objects/overlay/kustomization.yaml"} {
			for _, method := range []string{"PUT", "PATCH", "DELETE"} {
				a := committing.send(ctx, http.StatusConflict, method, shopPath(name), shopJSON("x"))
				causes := a.status().Details.Causes
				Expect(causes).To(HaveLen(1), a.body)
				Expect(causes[0].Field).To(Equal(where), a.body)
				Expect(causes[0].Message).NotTo(BeEmpty())
			}
		}
		for _, method := range []string{"PATCH", "DELETE"} {
			committing.send(ctx, http.StatusNotFound, method, shopPath("elsewhere"), "{}")
		}
		passing.send(ctx, http.StatusCreated, "PUT", shopPath("elsewhere"), shopJSON("hi"))
		for _, method := range []string{"PUT", "PATCH", "DELETE"} {
			a := committing.send(ctx, http.StatusConflict, method, shopPath("elsewhere"), shopJSON("x"))
			Expect(a.status().Message).To(ContainSubstring("no file in the repository has it"))
		}
		passing.send(ctx, http.StatusOK, "DELETE", shopPath("elsewhere"), "")
		Expect(head(ctx)).To(Equal(before))

		By("changing an object in a file with several, and one with the namespace of its kustomization")
		committing.send(ctx, http.StatusOK, "PATCH", shopPath("second"), `{"spec": {"host": "hello"}}`)
		Expect(file(ctx, "objects/several.yaml")).To(Equal(shopYAML("first", "hi") + "---\n" +
			shopYAML("second", "hello")))
		committing.send(ctx, http.StatusOK, "PUT", shopPath("namespaced"), shopJSON("hello"))
		namespaced = file(ctx, "objects/namespaced/shop.yaml")
		Expect(namespaced).To(ContainSubstring("host: hello"))
		Expect(namespaced).NotTo(ContainSubstring("namespace:"))
	})

	It("does not reveal tokens and passwords", func(ctx SpecContext) {
		for _, line := range strings.Split(git(ctx, "log", "--format=%an%ae%B", "-p", "main"), "\n") {
			for _, token := range tokens {
				Expect(token != "" && strings.Contains(line, token)).To(BeFalse())
			}
		}
	})
})

// overlay changes the object of a kustomization.
const overlay = `patches:
- patch: |
    apiVersion: shops.example.com/v1alpha1
    kind: Shop
    metadata: {name: overlaid, namespace: TEAM}
    spec: {host: changed}
`
