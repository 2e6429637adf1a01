package cluster_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/ksctl/gitops/e2e/cluster/artifacts"
	"github.com/ksctl/gitops/e2e/cluster/gitserver"
	"github.com/ksctl/gitops/e2e/cluster/registry"
)

// tree has the files of the sources in these specs.
var tree = map[string]string{"stack.yaml": "name: one\n", "components/a/values.yaml": "replicas: 1\n"}

// unpack returns the files of a .tar.gz by path.
func unpack(archive []byte) map[string]string {
	GinkgoHelper()
	zip, err := gzip.NewReader(bytes.NewReader(archive))
	Expect(err).NotTo(HaveOccurred())
	files, in := map[string]string{}, tar.NewReader(zip)
	for {
		header, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		Expect(err).NotTo(HaveOccurred())
		if header.Typeflag == tar.TypeReg {
			content, err := io.ReadAll(in)
			Expect(err).NotTo(HaveOccurred())
			files[header.Name] = string(content)
		}
	}
}

var _ = Describe("The Git server", func() {
	// startServer starts a server with one empty repository.
	serve := func(ctx SpecContext, options ...gitserver.Option) (*gitserver.Server, *gitserver.Repo) {
		GinkgoHelper()
		server, err := gitserver.New(GinkgoT().TempDir(), options...)
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(server.Close)
		repo, err := server.NewRepo(ctx, "team/stacks")
		Expect(err).NotTo(HaveOccurred())
		return server, repo
	}
	// clone clones a repository and returns the path of the working tree.
	clone := func(ctx SpecContext, server *gitserver.Server, url string, args ...string) string {
		GinkgoHelper()
		dir := filepath.Join(GinkgoT().TempDir(), "clone")
		_, err := server.Git(ctx, filepath.Dir(dir), append(append([]string{"clone", "--quiet"}, args...), url, dir)...)
		Expect(err).NotTo(HaveOccurred())
		return dir
	}

	It("serves commits to git clone", func(ctx SpecContext) {
		server, repo := serve(ctx)
		first, err := repo.Commit(ctx, tree, "first")
		Expect(err).NotTo(HaveOccurred())
		second, err := repo.Commit(ctx, map[string]string{"stack.yaml": "name: two\n", "odd \"name\\": "x"},
			"second\n\nwith a body\n",
			gitserver.Delete("components"), gitserver.Executable("run.sh", "#!/bin/sh\n"),
			gitserver.Symlink("out", "../../etc/passwd"))
		Expect(err).NotTo(HaveOccurred())
		Expect(repo.Head(ctx, gitserver.DefaultBranch)).To(Equal(second))

		dir := clone(ctx, server, repo.URL())
		Expect(server.Git(ctx, dir, "rev-parse", "HEAD", "HEAD~1")).To(Equal(second + "\n" + first))
		Expect(os.ReadFile(filepath.Join(dir, "stack.yaml"))).To(BeEquivalentTo("name: two\n"))
		Expect(filepath.Join(dir, "odd \"name\\")).To(BeAnExistingFile())
		Expect(filepath.Join(dir, "components")).NotTo(BeADirectory())
		Expect(os.Readlink(filepath.Join(dir, "out"))).To(Equal("../../etc/passwd"))
		info, err := os.Stat(filepath.Join(dir, "run.sh"))
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode() & 0o100).NotTo(BeZero())
		Expect(server.Requests()).To(BeNumerically(">=", 2))
	})

	It("replaces the whole tree, and supports branches, tags and rewritten history", func(ctx SpecContext) {
		server, repo := serve(ctx)
		_, err := repo.Head(ctx, "main")
		Expect(err).To(MatchError(gitserver.ErrNoBranch))
		first, err := repo.Commit(ctx, map[string]string{"old": "1"}, "first")
		Expect(err).NotTo(HaveOccurred())
		whole, err := repo.CommitDir(ctx, artifacts.Files(tree), "whole")
		Expect(err).NotTo(HaveOccurred())
		Expect(server.Git(ctx, repo.Dir(), "ls-tree", "-r", "--name-only", whole)).
			To(Equal("components/a/values.yaml\nstack.yaml"))

		Expect(repo.SetTag(ctx, "v1", first)).To(Succeed())
		Expect(server.Git(ctx, clone(ctx, server, repo.URL(), "--branch=v1"), "rev-parse", "HEAD")).To(Equal(first))

		side, err := repo.Commit(ctx, map[string]string{"side": "1"}, "side", gitserver.OnBranch("side"),
			gitserver.Onto(first))
		Expect(err).NotTo(HaveOccurred())
		Expect(server.Git(ctx, repo.Dir(), "rev-parse", side+"~1")).To(Equal(first))
		Expect(repo.DeleteBranch(ctx, "side")).To(Succeed())

		rewritten, err := repo.Commit(ctx, map[string]string{"new": "1"}, "rewritten", gitserver.Onto(first))
		Expect(err).NotTo(HaveOccurred())
		Expect(server.Git(ctx, repo.Dir(), "ls-tree", "-r", "--name-only", "main")).To(Equal("new\nold"))
		root, err := repo.Commit(ctx, map[string]string{"alone": "1"}, "orphan", gitserver.Orphan())
		Expect(err).NotTo(HaveOccurred())
		Expect(server.Git(ctx, repo.Dir(), "rev-list", "--parents", "-1", "main")).To(Equal(root), "no parent")
		Expect(server.Git(ctx, repo.Dir(), "ls-tree", "-r", "--name-only", "main")).To(Equal("alone"))
		Expect(repo.SetBranch(ctx, "main", rewritten)).To(Succeed())
		Expect(repo.Head(ctx, "main")).To(Equal(rewritten))
	})

	It("accepts pushes and force pushes", func(ctx SpecContext) {
		server, repo := serve(ctx)
		first, err := repo.Commit(ctx, tree, "first")
		Expect(err).NotTo(HaveOccurred())
		_, err = repo.Commit(ctx, map[string]string{"gone": "1"}, "to be dropped")
		Expect(err).NotTo(HaveOccurred())
		dir := clone(ctx, server, repo.URL())
		_, err = server.Git(ctx, dir, "reset", "--hard", "--quiet", first)
		Expect(err).NotTo(HaveOccurred())
		_, err = server.Git(ctx, dir, "push", "--quiet", "origin", "main")
		Expect(err).To(MatchError(ContainSubstring("rejected")))
		_, err = server.Git(ctx, dir, "push", "--quiet", "--force", "origin", "main")
		Expect(err).NotTo(HaveOccurred())
		Expect(repo.Head(ctx, "main")).To(Equal(first))
	})

	It("requires basic auth if configured", func(ctx SpecContext) {
		server, repo := serve(ctx, gitserver.WithBasicAuth("git", "s3cret"))
		_, err := repo.Commit(ctx, tree, "first")
		Expect(err).NotTo(HaveOccurred())
		_, err = server.Git(ctx, GinkgoT().TempDir(), "ls-remote", repo.URL())
		Expect(err).To(HaveOccurred())
		with, err := url.Parse(repo.URL())
		Expect(err).NotTo(HaveOccurred())
		with.User = url.UserPassword("git", "s3cret")
		Expect(filepath.Join(clone(ctx, server, with.String()), "stack.yaml")).To(BeAnExistingFile())
	})
})

var _ = Describe("The registry", func() {
	It("returns a pushed Flux artifact by tag and by digest", func(ctx SpecContext) {
		server, err := registry.New()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(server.Close)
		digest, err := server.Push(ctx, "team/stacks", "v1", artifacts.Files(tree), "main@sha1:abc")
		Expect(err).NotTo(HaveOccurred())
		for _, reference := range []string{"team/stacks:v1", "team/stacks@" + digest} {
			archive, err := server.Pull(ctx, reference)
			Expect(err).NotTo(HaveOccurred())
			Expect(unpack(archive)).To(Equal(tree))
		}

		response, err := http.Get("http://" + server.Host() + "/v2/team/stacks/manifests/v1")
		Expect(err).NotTo(HaveOccurred())
		manifest, err := io.ReadAll(response.Body)
		Expect(errors.Join(err, response.Body.Close())).To(Succeed())
		sum := sha256.Sum256(manifest)
		Expect(digest).To(Equal("sha256:" + hex.EncodeToString(sum[:])))
		Expect(string(manifest)).To(And(
			ContainSubstring(string(registry.ConfigMediaType)), ContainSubstring(string(registry.ContentMediaType)),
			ContainSubstring(`"org.opencontainers.image.revision":"main@sha1:abc"`)))

		again, err := server.Push(ctx, "team/stacks", "v2", artifacts.Files(tree), "main@sha1:abc")
		Expect(err).NotTo(HaveOccurred())
		Expect(again).To(Equal(digest))
		_, err = server.Pull(ctx, "team/stacks:v3")
		Expect(err).To(MatchError(ContainSubstring("v3")))
	})
})

var _ = Describe("The artifact server", func() {
	get := func(url string) (int, []byte) {
		GinkgoHelper()
		response, err := http.Get(url)
		Expect(err).NotTo(HaveOccurred())
		body, err := io.ReadAll(response.Body)
		Expect(errors.Join(err, response.Body.Close())).To(Succeed())
		return response.StatusCode, body
	}

	It("serves archives that match their artifact status", func() {
		server, err := artifacts.New()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(server.Close)
		artifact, err := server.Publish("gitrepository/flux-system/stacks", artifacts.Files(tree), "main@sha1:abc")
		Expect(err).NotTo(HaveOccurred())
		status, body := get(artifact.URL)
		Expect(status).To(Equal(http.StatusOK))
		sum := sha256.Sum256(body)
		Expect(artifact.Digest).To(Equal("sha256:" + hex.EncodeToString(sum[:])))
		Expect(artifact.Size).To(HaveValue(BeEquivalentTo(len(body))))
		Expect(artifact.Revision).To(Equal("main@sha1:abc"))
		Expect(strings.HasSuffix(artifact.URL, artifact.Path)).To(BeTrue())
		Expect(unpack(body)).To(Equal(tree))

		again, err := server.Publish("gitrepository/flux-system/stacks", artifacts.Files(tree), "main@sha1:def")
		Expect(err).NotTo(HaveOccurred())
		Expect(again.Digest).To(Equal(artifact.Digest), "the same tree")
		Expect(server.Requests()).To(BeEquivalentTo(1))
	})

	It("fails requests and replaces archives on demand", func() {
		server, err := artifacts.New()
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(server.Close)
		artifact := server.PublishArchive("bucket/x/y", []byte("no archive"), "1")
		server.FailNext(1)
		status, _ := get(artifact.URL)
		Expect(status).To(Equal(http.StatusServiceUnavailable))
		status, _ = get(artifact.URL)
		Expect(status).To(Equal(http.StatusOK))
		server.Replace(artifact.Path, []byte("forged"))
		_, body := get(artifact.URL)
		Expect(string(body)).To(Equal("forged"))
		server.Replace(artifact.Path, nil)
		status, _ = get(artifact.URL)
		Expect(status).To(Equal(http.StatusNotFound))
	})
})
