package install_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	appsv1 "github.com/ksctl/gitops/api/apps/v1"
	"github.com/ksctl/gitops/e2e/cluster"
)

// archive returns an archive with a stack of one ConfigMap, and an entry whose content is as
// many zeros as its size.
func archive(entry tar.Header) []byte {
	GinkgoHelper()
	var out bytes.Buffer
	zip := gzip.NewWriter(&out)
	w := tar.NewWriter(zip)
	for name, text := range map[string]string{
		"stacks/app/stack.yaml":  "apiVersion: apps.ksctl.com/v1\nkind: Stack\nmetadata: {name: app}\n" + oneComponent,
		"stacks/app/main/a.yaml": configMap("a", "hostile"),
	} {
		Expect(w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(text))})).
			To(Succeed())
		_, err := w.Write([]byte(text))
		Expect(err).NotTo(HaveOccurred())
	}
	Expect(w.WriteHeader(&entry)).To(Succeed())
	zeros := make([]byte, 1<<20)
	for left := entry.Size; left > 0; left -= int64(len(zeros)) {
		_, err := w.Write(zeros[:min(left, int64(len(zeros)))])
		Expect(err).NotTo(HaveOccurred())
	}
	Expect(w.Close()).To(Succeed())
	Expect(zip.Close()).To(Succeed())
	return out.Bytes()
}

// publishArchive makes an archive, byte for byte, the artifact of a source.
func publishArchive(ctx context.Context, ns, revision string, archive []byte) {
	GinkgoHelper()
	a := server.PublishArchive("ksctlsource/"+ns+"/src", archive, revision)
	src := &appsv1.KsctlSource{ObjectMeta: objectMeta(ns, "src")}
	Expect(get(ctx, src)).To(Succeed())
	src.Status.Artifact = &a
	Expect(plane.Client().Status().Update(ctx, src)).To(Succeed())
}

var _ = DescribeTable("A malicious artifact is refused and reported, installed objects stay, and the next artifact "+
	"is applied",
	func(ctx SpecContext, pack func() []byte, reason string, texts ...string) {
		ns := namespaceFor(ctx)
		stack(ctx, ns, "main@sha1:1", configMap("a", "1"))
		in := newInstall(ctx, ns, "i", hourly)
		atRevision(ctx, in, "main@sha1:1")
		mark := auditMark(ctx)
		publishArchive(ctx, ns, "main@sha1:bad", pack())
		reports(ctx, in, "False", reason, texts...)
		Expect(condition(in, "Stalled")).To(HaveField("Reason", reason), "a retry would not help")
		Expect(condition(in, "Reconciling")).To(BeNil())
		Expect(in.Status.LastAppliedRevision).To(Equal("main@sha1:1"))
		Expect(requestsSince(ctx, mark, cluster.ByEffectiveUser(tenant(ns)), cluster.Write)).
			To(BeEmpty(), "nothing of it is applied")
		stack(ctx, ns, "main@sha1:2", configMap("a", "2"))
		atRevision(ctx, in, "main@sha1:2")
		Expect(condition(in, "Stalled")).To(BeNil())
	},
	Entry("a symbolic link out of the tree", func() []byte {
		return archive(tar.Header{Typeflag: tar.TypeSymlink, Name: "stacks/app/main/b.yaml",
			Linkname: "../../../../etc/passwd"})
	}, "UnsafePath", "stacks/app/main/b.yaml", "symbolic link"),
	Entry("a path out of the tree", func() []byte {
		return archive(tar.Header{Typeflag: tar.TypeReg, Name: "../b.yaml", Mode: 0o644})
	}, "UnsafePath", "../b.yaml"),
	Entry("a hard link", func() []byte {
		return archive(tar.Header{Typeflag: tar.TypeLink, Name: "stacks/app/main/b.yaml", Linkname: "/etc/passwd"})
	}, "UnsafePath", "stacks/app/main/b.yaml", "hard link"),
	Entry("a device", func() []byte {
		return archive(tar.Header{Typeflag: tar.TypeChar, Name: "stacks/app/main/null", Devmajor: 1, Devminor: 3})
	}, "UnsafePath", "stacks/app/main/null", "device"),
	Entry("a file above the size limit", func() []byte {
		return archive(tar.Header{Typeflag: tar.TypeReg, Name: "stacks/app/bomb", Mode: 0o644, Size: 64<<20 + 1})
	}, "TooLarge", "stacks/app/bomb"),
	Entry("ten thousand nested folders", func() []byte {
		return archive(tar.Header{Typeflag: tar.TypeReg, Name: strings.Repeat("d/", 10_000) + "b.yaml", Mode: 0o644})
	}, "TooDeep"),
	Entry("a truncated archive", func() []byte {
		whole := archive(tar.Header{Typeflag: tar.TypeReg, Name: "stacks/app/b", Mode: 0o644})
		return whole[:len(whole)-20]
	}, "Malformed"),
)
