// Package stacks is the stack format as a library: load, validate, resolve and
// render, without a cluster. Controllers and the command line use the same code.
//
//	Load     a folder of a source → Definition, valid
//	Resolve  Definition + Choices → Plan: components in order, exact versions, merged overrides
//	Render   Request              → Result: objects, placed, sorted and hashed
//	Renderer the same, each digest once
//
// Render is a function of its request and of the files that it reads below
// Request.Root, which Result.Trace lists. It fetches nothing, runs nothing, asks no
// clock and no cluster.
//
// What an install says wins in this order, low to high: the stack's defaults (for a
// chart: its own values, valuesFiles, values), values from ConfigMaps and Secrets,
// what parameters map to, the component's override.
//
// Schemas that a stack writes (parameters.schema and schema) are closed: an object
// that lists its properties lists all of them, at every depth, unless it says
// additionalProperties or patternProperties or is put together with allOf and the
// like. That is how typos are found. The values.schema.json of a chart is read to the letter.
//
// Everything that is wrong is told at once, as Errors with file, line and component.
// Values from Secrets are never repeated.
package stacks
