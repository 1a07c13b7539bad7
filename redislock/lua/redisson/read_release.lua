-- Releases read holds.
return release(release_reader)
