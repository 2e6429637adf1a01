package exportstate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/ksctl/gitops/api/storage/v1alpha1"
	"github.com/ksctl/gitops/internal/statestore"
)

// document is the desired content of one file.
type document struct {
	// key is the key of a cluster, or the cloud of credentials.
	key string
	// file is the name of the file.
	file string
	// data is the unencrypted content.
	data []byte
	// hash is a keyed hash of the data and the recipients.
	hash string
	// credentials is true for the credentials of a cloud.
	credentials bool
	// action and message say why the document cannot be exported; empty if it can be.
	action  v1alpha1.ExportAction
	message string
}

// desired is the desired content of a target.
type desired struct {
	documents []document
	// hasClusters and hasCredentials are true if the store has an object for them. Otherwise,
	// missing entries are not treated as removed.
	hasClusters, hasCredentials bool
}

// targetFile is the state of a file in the target.
type targetFile struct {
	// hash is a keyed hash of the content; empty if the file does not exist.
	hash string
	// isExport is true if the file is an encrypted export of the expected entry.
	isExport bool
}

// record has the hashes of the document that was written last, and of the encrypted file.
type record struct{ documentHash, fileHash string }

const recordSeparator = "-"

func parseRecord(s string) record {
	document, file, _ := strings.Cut(s, recordSeparator)
	return record{document, file}
}

// String returns the record in the format of the status.
func (r record) String() string { return r.documentHash + recordSeparator + r.fileHash }

// exportPlan has the action for each file.
type exportPlan struct {
	clusters, credentials []v1alpha1.ExportedFile
	// write are the documents to write, remove the files to remove.
	write  []document
	remove []string
	// restored are files that another client has changed or removed.
	restored []string
	// confirmed is true if the target has a file that an earlier reconcile wrote without confirming
	// it.
	confirmed bool
	// invalidReason is the condition reason of invalid files, if it is not the default.
	invalidReason string
}

// newPlan decides the action for each file, from the desired content, the files in the target and
// what was written before.
func newPlan(want desired, have map[string]targetFile, before v1alpha1.ExportStateStatus, prune bool) exportPlan {
	p := exportPlan{}
	lastRows := map[string]v1alpha1.ExportedFile{}
	for _, row := range slices.Concat(before.Clusters, before.Credentials) {
		lastRows[row.File] = row
	}
	for _, d := range want.documents {
		last := confirmWrite(lastRows[d.file], have[d.file])
		row := v1alpha1.ExportedFile{Key: d.key, File: d.file, Action: d.action, Message: d.message,
			Written: last.Written, Writing: last.Writing}
		if d.action != "" {
			p.add(row, d.credentials)
			continue
		}
		p.confirmed = p.confirmed || last.Written != lastRows[d.file].Written
		row.Action = decide(d, have[d.file], parseRecord(row.Written))
		row.Message, row.Ready = actionMessages[row.Action], row.Action == v1alpha1.ExportInSync
		if row.Action == v1alpha1.ExportRestore {
			p.restored = append(p.restored, d.file)
		}
		if writes(row.Action) {
			p.write = append(p.write, d)
		}
		p.add(row, d.credentials)
	}
	for _, row := range before.Clusters {
		p.addRemoved(row, have[row.File], prune && want.hasClusters, false)
	}
	for _, row := range before.Credentials {
		p.addRemoved(row, have[row.File], prune && want.hasCredentials, true)
	}
	for _, rows := range [][]v1alpha1.ExportedFile{p.clusters, p.credentials} {
		slices.SortFunc(rows, func(a, b v1alpha1.ExportedFile) int { return cmp.Compare(a.Key, b.Key) })
	}
	return p
}

// confirmWrite returns a row whose unconfirmed write is confirmed, if the target has that file.
func confirmWrite(row v1alpha1.ExportedFile, have targetFile) v1alpha1.ExportedFile {
	if row.Writing != "" && have.hash != "" && parseRecord(row.Writing).fileHash == have.hash {
		row.Written, row.Writing = row.Writing, ""
	}
	return row
}

// decide returns the action for a file with a desired document.
func decide(d document, have targetFile, last record) v1alpha1.ExportAction {
	switch {
	case have.hash == "" && last.fileHash == "":
		return v1alpha1.ExportCreate
	case last.fileHash == "" && !have.isExport:
		return v1alpha1.ExportTaken
	case last.fileHash == "":
		return v1alpha1.ExportUpdate // an earlier export wrote it, and its status is lost
	case have.hash != last.fileHash:
		return v1alpha1.ExportRestore
	case last.documentHash != d.hash:
		return v1alpha1.ExportUpdate
	}
	return v1alpha1.ExportInSync
}

// add adds a row.
func (p *exportPlan) add(row v1alpha1.ExportedFile, credentials bool) {
	if credentials {
		p.credentials = append(p.credentials, row)
	} else {
		p.clusters = append(p.clusters, row)
	}
}

// addRemoved decides the action for a file whose entry is no longer exported. A file that another
// client has changed since is kept.
func (p *exportPlan) addRemoved(row v1alpha1.ExportedFile, have targetFile, prune, credentials bool) {
	same := func(r v1alpha1.ExportedFile) bool { return r.Key == row.Key }
	row = confirmWrite(row, have)
	if slices.ContainsFunc(p.clusters, same) && !credentials || slices.ContainsFunc(p.credentials, same) &&
		credentials ||
		row.Written == "" || have.hash == "" {
		return
	}
	row.Action, row.Writing = v1alpha1.ExportLeft, ""
	if prune && parseRecord(row.Written).fileHash == have.hash {
		row.Action = v1alpha1.ExportRemove
		p.remove = append(p.remove, row.File)
	}
	row.Message, row.Ready = actionMessages[row.Action], row.Action == v1alpha1.ExportLeft
	p.add(row, credentials)
}

// writes reports whether the action writes a file.
func writes(a v1alpha1.ExportAction) bool {
	return a == v1alpha1.ExportCreate || a == v1alpha1.ExportUpdate || a == v1alpha1.ExportRestore
}

// actionMessages explain actions to users.
var actionMessages = map[v1alpha1.ExportAction]string{
	v1alpha1.ExportCreate:  "not written yet",
	v1alpha1.ExportUpdate:  "not written yet",
	v1alpha1.ExportRestore: "changed or removed by another client; not restored yet",
	v1alpha1.ExportRemove:  "no longer exported; the file is not removed yet",
	v1alpha1.ExportLeft:    "no longer exported; the file stays",
	v1alpha1.ExportTaken: "a file with this name exists in the target and is not an encrypted export of this " +
		"entry: move the file away, or export to another place",
}

// eachRow calls a function for all rows of the plan, which it may change.
func (p *exportPlan) eachRow(f func(*v1alpha1.ExportedFile)) {
	for _, rows := range [][]v1alpha1.ExportedFile{p.clusters, p.credentials} {
		for i := range rows {
			f(&rows[i])
		}
	}
}

// markInvalid removes a document from the files to write, and sets the reason in its row.
func (p *exportPlan) markInvalid(file, reason, message string) {
	p.write = slices.DeleteFunc(p.write, func(d document) bool { return d.file == file })
	p.restored = slices.DeleteFunc(p.restored, func(f string) bool { return f == file })
	p.invalidReason = reason
	p.eachRow(func(row *v1alpha1.ExportedFile) {
		if row.File == file {
			row.Action, row.Ready, row.Message = v1alpha1.ExportInvalid, false, message
		}
	})
}

// announce marks the files to write, so that the next reconcile can tell what a reconcile wrote
// that ended before it updated the status.
func (p *exportPlan) announce(records map[string]record) {
	p.eachRow(func(row *v1alpha1.ExportedFile) {
		if writes(row.Action) {
			row.Writing = records[row.File].String()
		}
	})
}

// markWritten marks all changes of the plan as done.
func (p *exportPlan) markWritten() {
	p.eachRow(func(row *v1alpha1.ExportedFile) {
		if writes(row.Action) {
			row.Action, row.Message, row.Ready = v1alpha1.ExportInSync, "", true
			row.Written, row.Writing = row.Writing, ""
		}
	})
	gone := func(row v1alpha1.ExportedFile) bool { return row.Action == v1alpha1.ExportRemove }
	p.clusters, p.credentials = slices.DeleteFunc(p.clusters, gone), slices.DeleteFunc(p.credentials, gone)
}

// summary returns a summary of the changes for an event.
func (p *exportPlan) summary() string {
	n, m := p.count(v1alpha1.ExportCreate, v1alpha1.ExportUpdate, v1alpha1.ExportRestore)
	switch {
	case n+m == 0:
		return "removed " + statestore.Plural(len(p.remove), "file")
	case len(p.remove) == 0:
		return "wrote " + statestore.CountSummary(n, m)
	}
	return "wrote " + statestore.CountSummary(n, m) + ", and removed " + statestore.Plural(len(p.remove), "file")
}
