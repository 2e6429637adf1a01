package engine

import "encoding/base64"

// foldStringData moves what a Secret gives as stringData into data. The API
// server does so too, but gives the ownership of a key in data to nobody, so
// that a change of it by others would not be seen.
func foldStringData(it *Item, obj map[string]any) {
	plain, ok := obj["stringData"].(map[string]any)
	if it.Group != "" || it.Kind != "Secret" || !ok {
		return
	}
	data := object(obj, "data")
	for k, v := range plain {
		s, ok := v.(string)
		if !ok {
			return // the API server says what is wrong with it
		}
		data[k] = base64.StdEncoding.EncodeToString([]byte(s))
	}
	delete(obj, "stringData")
}
