package exportstate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/internal/statestore"
)

// document is what one file is to have.
type document struct {
	// key of the cluster, or the cloud that credentials are of.
	key string
	// file that it goes to.
	file string
	// data is plain.
	data []byte
	// sum tells it, and whom it is encrypted to, apart from what was there before.
	sum string
	// credentials is true for those of a cloud.
	credentials bool
}

// wishes are what is to be exported.
type wishes struct {
	documents []document
	// refused are lines of what the store has and nobody can export, with why; likewise of
	// credentials.
	refused, refusedCredentials []v1alpha1.ExportedFile
	// clusters and credentials are true when there is something that holds them: what is
	// missing in a store that is gone is not gone from it.
	clusters, credentials bool
}

// found is a file of the target.
type found struct {
	// sum of its bytes; empty: there is none.
	sum string
	// export is true for an encrypted one of what is to be in it.
	export bool
}

// record is what is known of a file from before: sums of what was written and of the file that
// it was written in.
type record struct{ document, file string }

const between = "-"

func readRecord(s string) record {
	document, file, _ := strings.Cut(s, between)
	return record{document, file}
}

// String is a record as the status has it.
func (r record) String() string { return r.document + between + r.file }

// plan is what becomes of each file.
type plan struct {
	clusters, credentials []v1alpha1.ExportedFile
	// write are the documents to write, remove the files to take away.
	write  []document
	remove []string
	// restored are files that somebody else has changed or removed.
	restored []string
	// found is true when there is what a pass wrote that could not say so.
	found bool
	// reason of what is wrong, where it is not the usual one.
	reason string
}

// newPlan decides about each file, from what is to be exported, what the target has and what
// was written before.
func newPlan(want wishes, have map[string]found, before v1alpha1.ExportStateStatus, prune bool) plan {
	p := plan{}
	known := map[string]v1alpha1.ExportedFile{}
	for _, row := range slices.Concat(before.Clusters, before.Credentials) {
		known[row.File] = row
	}
	for _, d := range want.documents {
		was := promoted(known[d.file], have[d.file])
		p.found = p.found || was.Written != known[d.file].Written
		row := v1alpha1.ExportedFile{Key: d.key, File: d.file, Written: was.Written, Writing: was.Writing}
		row.Action = decide(d, have[d.file], readRecord(row.Written))
		row.Message, row.Ready = explain(row.Action), row.Action == v1alpha1.ExportInSync
		if row.Action == v1alpha1.ExportRestore {
			p.restored = append(p.restored, d.file)
		}
		if writes(row.Action) {
			p.write = append(p.write, d)
		}
		p.add(row, d.credentials)
	}
	for i, row := range slices.Concat(want.refused, want.refusedCredentials) {
		was := promoted(known[row.File], have[row.File])
		row.Written, row.Writing = was.Written, was.Writing
		p.add(row, i >= len(want.refused))
	}
	for _, row := range before.Clusters {
		p.addGone(row, have[row.File], prune && want.clusters, false)
	}
	for _, row := range before.Credentials {
		p.addGone(row, have[row.File], prune && want.credentials, true)
	}
	for _, rows := range [][]v1alpha1.ExportedFile{p.clusters, p.credentials} {
		slices.SortFunc(rows, func(a, b v1alpha1.ExportedFile) int { return cmp.Compare(a.Key, b.Key) })
	}
	return p
}

// promoted is a line after what was about to be written was found.
func promoted(row v1alpha1.ExportedFile, have found) v1alpha1.ExportedFile {
	if row.Writing != "" && have.sum != "" && readRecord(row.Writing).file == have.sum {
		row.Written, row.Writing = row.Writing, ""
	}
	return row
}

// decide is what becomes of a file that is to have a document.
func decide(d document, have found, was record) v1alpha1.ExportAction {
	switch {
	case have.sum == "" && was.file == "":
		return v1alpha1.ExportCreate
	case was.file == "" && !have.export:
		return v1alpha1.ExportTaken
	case was.file == "":
		return v1alpha1.ExportUpdate // an export of it from before, of whose status nothing is left
	case have.sum != was.file:
		return v1alpha1.ExportRestore
	case was.document != d.sum:
		return v1alpha1.ExportUpdate
	}
	return v1alpha1.ExportInSync
}

// add a line.
func (p *plan) add(row v1alpha1.ExportedFile, credentials bool) {
	if credentials {
		p.credentials = append(p.credentials, row)
	} else {
		p.clusters = append(p.clusters, row)
	}
}

// addGone decides about a file of what is not exported any more. One that somebody has changed
// since is left.
func (p *plan) addGone(row v1alpha1.ExportedFile, have found, prune, credentials bool) {
	same := func(r v1alpha1.ExportedFile) bool { return r.Key == row.Key }
	row = promoted(row, have)
	if slices.ContainsFunc(p.clusters, same) && !credentials || slices.ContainsFunc(p.credentials, same) && credentials ||
		row.Written == "" || have.sum == "" {
		return
	}
	row.Action, row.Writing = v1alpha1.ExportLeft, ""
	if prune && readRecord(row.Written).file == have.sum {
		row.Action = v1alpha1.ExportRemove
		p.remove = append(p.remove, row.File)
	}
	row.Message, row.Ready = explain(row.Action), row.Action == v1alpha1.ExportLeft
	p.add(row, credentials)
}

// writes is true for what a file is written for.
func writes(a v1alpha1.ExportAction) bool {
	return a == v1alpha1.ExportCreate || a == v1alpha1.ExportUpdate || a == v1alpha1.ExportRestore
}

// explain says more of an action, for a person.
func explain(a v1alpha1.ExportAction) string {
	switch a {
	case v1alpha1.ExportCreate, v1alpha1.ExportUpdate:
		return "it is to be written"
	case v1alpha1.ExportRestore:
		return "somebody has changed or removed the file; it is to be written again"
	case v1alpha1.ExportRemove:
		return "it is not exported any more; its file is to go"
	case v1alpha1.ExportLeft:
		return "it is not exported any more; its file stays"
	case v1alpha1.ExportTaken:
		return "the file that it would go to is there, and is no encrypted state of it: move that away, or export to another place"
	}
	return ""
}

// rows are all lines of the plan, to be changed.
func (p *plan) rows(do func(*v1alpha1.ExportedFile)) {
	for _, rows := range [][]v1alpha1.ExportedFile{p.clusters, p.credentials} {
		for i := range rows {
			do(&rows[i])
		}
	}
}

// refuse takes a document out of what is written.
func (p *plan) refuse(file, reason, why string) {
	p.write = slices.DeleteFunc(p.write, func(d document) bool { return d.file == file })
	p.restored = slices.DeleteFunc(p.restored, func(f string) bool { return f == file })
	p.reason = reason
	p.rows(func(row *v1alpha1.ExportedFile) {
		if row.File == file {
			row.Action, row.Ready, row.Message = v1alpha1.ExportInvalid, false, why
		}
	})
}

// announce marks what is about to be written, so that a pass that ends before it could say how
// is understood by the next.
func (p *plan) announce(sums map[string]record) {
	p.rows(func(row *v1alpha1.ExportedFile) {
		if writes(row.Action) {
			row.Writing = sums[row.File].String()
		}
	})
}

// written takes note that everything was done.
func (p *plan) written() {
	p.rows(func(row *v1alpha1.ExportedFile) {
		if writes(row.Action) {
			row.Action, row.Message, row.Ready = v1alpha1.ExportInSync, "", true
			row.Written, row.Writing = row.Writing, ""
		}
	})
	gone := func(row v1alpha1.ExportedFile) bool { return row.Action == v1alpha1.ExportRemove }
	p.clusters, p.credentials = slices.DeleteFunc(p.clusters, gone), slices.DeleteFunc(p.credentials, gone)
}

// did says what is done, for an event and a commit.
func (p *plan) did() string {
	n, m := 0, 0
	for _, d := range p.write {
		if d.credentials {
			m++
		} else {
			n++
		}
	}
	switch {
	case n+m == 0:
		return "removed " + statestore.Plural(len(p.remove), "file")
	case len(p.remove) == 0:
		return "wrote " + statestore.Said(n, m)
	}
	return "wrote " + statestore.Said(n, m) + ", and removed " + statestore.Plural(len(p.remove), "file")
}
