package filestore

import (
	"errors"
	"net/http"
	"strconv"

	"github.com/go-logr/logr"
)

// Handler serves the files of a store as GET /files/<hash>/<name>. At most concurrent files are in
// memory at the same time.
func Handler(store Store, concurrent int, log logr.Logger) http.Handler {
	slots := make(chan struct{}, concurrent)
	mux := http.NewServeMux()
	mux.HandleFunc("GET /files/{hash}/{name}", func(w http.ResponseWriter, r *http.Request) {
		select {
		case slots <- struct{}{}:
			defer func() { <-slots }()
		case <-r.Context().Done():
			return
		}
		f := File{SHA256: r.PathValue("hash"), Name: r.PathValue("name")}
		content, err := store.Get(r.Context(), f)
		if errors.Is(err, ErrNotFound) {
			http.Error(w, "the file does not exist", http.StatusNotFound)
			return
		}
		if err != nil {
			log.Error(err, "reading a file failed", "hash", f.SHA256, "name", f.Name)
			http.Error(w, "the file can't be read", http.StatusInternalServerError)
			return
		}
		h := w.Header()
		h.Set("Content-Type", "application/octet-stream")
		h.Set("Content-Length", strconv.Itoa(len(content)))
		h.Set("ETag", `"`+f.SHA256+`"`)
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
		h.Set("X-Content-Type-Options", "nosniff")
		_, _ = w.Write(content)
	})
	return mux
}
