{#- Combine what is at the places from `begin` to before `end`, from left to right, as `total`. Of no places the total is
    arbitrary. The block gives what is at the place that it gets.
    Values: its type, the functions that join two of them and pick one of two, and how many are loaded at a time, so that
    their loads are under way together. -#}
{% macro combine_between(type, join, pick, loads) %}
{% if loads == 1 %}
    var total = {{ caller("begin") }};
    for (var next = begin + 1u; next < end; next++) {
        total = {{ join }}(total, {{ caller("next") }});
    }
{% else %}
    var total: {{ type }};
    var next = begin;
    for (; next + {{ loads - 1 }}u < end; next += {{ loads }}u) {
{% for i in range(loads) %}
        let part{{ i }} = {{ caller("next + %du" % i) }};
{% endfor %}
        if (next == begin) {
            total = part0;
        } else {
            total = {{ join }}(total, part0);
        }
{% for i in range(1, loads) %}
        total = {{ join }}(total, part{{ i }});
{% endfor %}
    }
    if (next < end) {
{% for i in range(loads - 1) %}
        let part{{ i }} = {{ caller("min(next + %du, end - 1u)" % i) }};
{% endfor %}
        total = {{ pick }}(next == begin, part0, {{ join }}(total, part0));
{% for i in range(1, loads - 1) %}
        total = {{ pick }}(next + {{ i }}u < end, {{ join }}(total, part{{ i }}), total);
{% endfor %}
    }
{% endif %}
{% endmacro %}
