// Package notes keeps short notes in a folder, one file each.
package notes

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

type Note struct {
	ID    string
	Title string
	Body  string
	Tags  []string
}

type Store struct {
	Folder string
}

func (s *Store) path(id string) string {
	return filepath.Join(s.Folder, id+".json")
}

// Save writes a note, and its folder if there is none.
func (s *Store) Save(note Note) error {
	if err := os.MkdirAll(s.Folder, 0o755); err != nil {
		return err
	}
	data, err := json.MarshalIndent(note, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(s.path(note.ID), data, 0o644)
}

// Load reads a note.
func (s *Store) Load(id string) (Note, error) {
	var note Note
	data, err := os.ReadFile(s.path(id))
	if err != nil {
		return note, err
	}
	err = json.Unmarshal(data, &note)
	return note, err
}

// List returns all notes, sorted by title.
func (s *Store) List() ([]Note, error) {
	names, err := filepath.Glob(filepath.Join(s.Folder, "*.json"))
	if err != nil {
		return nil, err
	}
	var found []Note
	for _, name := range names {
		id := strings.TrimSuffix(filepath.Base(name), ".json")
		note, err := s.Load(id)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		found = append(found, note)
	}
	sort.Slice(found, func(i, j int) bool {
		return found[i].Title < found[j].Title
	})
	return found, nil
}

// WithTag returns the notes that have a tag.
func WithTag(notes []Note, tag string) []Note {
	var found []Note
	for _, note := range notes {
		for _, one := range note.Tags {
			if strings.EqualFold(one, tag) {
				found = append(found, note)
				break
			}
		}
	}
	return found
}

// CountTags returns how many notes have each tag.
func CountTags(notes []Note) map[string]int {
	counts := make(map[string]int)
	for _, note := range notes {
		for _, tag := range note.Tags {
			counts[strings.ToLower(tag)]++
		}
	}
	return counts
}

func Slug(title string) string {
	var b strings.Builder
	for _, r := range strings.ToLower(title) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9':
			b.WriteRune(r)
		case r == ' ' || r == '-':
			b.WriteByte('-')
		}
	}
	return b.String()
}
