#!/usr/bin/perl
# Replaces a text by another in every value.
use strict;
use warnings;

my ($old, $new) = @ARGV;
while (my $key = <STDIN>) {
    my $value = <STDIN>;
    my $text = substr($value, length "value: ");
    $text =~ s/\Q$old\E/$new/g;
    print "forward\n", $key, "value: ", $text;
}
